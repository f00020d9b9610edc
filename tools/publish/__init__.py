"""
Put what was built where clusters get it: into a registry.

May import `image`. Must never decide what an image contains. Neighbours: `tools/images.py` is the command.
"""
