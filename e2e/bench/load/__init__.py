"""
What is measured, and what it is measured against: services, control planes, simulated Nodes, callers.

May import `record`. Must never print.
"""
