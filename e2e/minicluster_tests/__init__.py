"""
The embedded cluster keeps its promises to its peers.
"""
