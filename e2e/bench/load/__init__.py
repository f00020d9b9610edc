"""
The measured services and their surroundings: control planes, simulated Nodes, callers.

May import `record`. Must never print.
"""
