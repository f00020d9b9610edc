"""
What the device plugin does: the sequences that read through adapters, decide, and write.

`plugin` runs one `session` after another by `node_settings`. A session has these parts:

- `card_loop` looks after the devices, and `driver` opens and closes the driver for it.
- `calls` answers the kubelet, through `identity` or `lock`. `kubelet_loop` registers with the kubelet.
- `ahead` makes the directories of containers before the kubelet calls.
- `driver_part` describes the driver for CDI specs, `link_loop` rates the links between devices.
- `mig` has the MIG instances.
- `node_loop` updates the Node and the host's files.

May import `adapters`, `decide` and settings. Must never import a client library.
"""
