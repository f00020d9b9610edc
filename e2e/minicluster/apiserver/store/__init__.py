"""
All objects and their history: one version counter, watches of it, a journal on disk.

May import `api`. Must never validate an object: every write succeeds.
"""
