"""
MPS on this Node: an operator's `daemon`, or the plugin's own by `control`, started through `in_driver_root`.
"""
