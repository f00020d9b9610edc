"""
Frozen values: what was read of a cluster, and what it means.

May import `hamicommon`'s contract. Must never read, decide or print anything.
"""
