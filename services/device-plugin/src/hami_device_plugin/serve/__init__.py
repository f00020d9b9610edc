"""
What the device plugin does: the sequences that read through adapters, decide, and write.

`plugin` runs one `session` after another by `node_settings`. A session probes the Node, then serves it:

- `probe` finds out what the Node is: driver, devices, mode, strategy, enforcement.
- `allocate` answers the kubelet's calls for replicas, which `replica_plugin` offers, and `kubelet_loop` registers.
- `dra` has the kubelet's calls for ResourceClaims instead, on Nodes of that kind.
- `health` follows the devices.
- `mig` has the MIG instances.
- `node_loop` keeps the Node's annotations, its Pods' marks and the host's files up to date.

May import `adapters`, `decide` and settings. Must never import a client library.
"""
