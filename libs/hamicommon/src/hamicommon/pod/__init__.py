"""
A v1 Pod, read once for every service.

Owns what a Pod's fields mean: which containers it has and when each runs, whether it has ended, which container was
granted what, and what it takes of each device over its life. Amounts that were moved out of limits are read as if they
were there. Services decide from these values and have no such rules.
Must never do I/O, read a clock or log.
"""
