"""
The MIG instances of a Node: `instances` creates and destroys them in mode `mig`, `static` finds those that exist.

`reports` tells operators.
May import `kubelet_loop` and `context` of `serve`. Must never decide which instance may be created or destroyed:
`decide.mig` does.
"""
