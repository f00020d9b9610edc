"""
The MIG instances of a Node: `instances` creates and destroys them in mode `mig`, `static` serves those that exist.

`wiring` connects `instances` to the driver, the journal, the API server and the kubelet.
May import `kubelet_loop` of `serve`. Must never decide which instance may be created or destroyed: `decide.mig` does.
"""
