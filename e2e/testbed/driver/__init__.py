"""
The fake driver on a Node: its hardware, its limits on memory, MPS, MIG, and how CDI describes it.
"""
