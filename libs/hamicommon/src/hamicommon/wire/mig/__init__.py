"""
The MIG instances of a Pod: `allocations` is their form since 2.10, `suffix` that from 2.5 to 2.9.
"""
