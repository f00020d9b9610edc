"""
All objects and their history: one version counter, watches of it, a journal on disk.

May import `api`. Must never judge an object: what arrives here is written.
"""
