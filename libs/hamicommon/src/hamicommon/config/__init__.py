"""
The device config and the settings of single Nodes: what is in them, and how a mistake is told.
"""
