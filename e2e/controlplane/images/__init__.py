"""
Container images: packed, named, imported once and linked into each Node.

May import `machines`. Must never reach a registry.
"""
