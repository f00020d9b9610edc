"""
MIG on a Node: `files` is what the driver shows, `instances` makes and lists instances as an administrator does.
"""
