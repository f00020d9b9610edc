"""
What the device plugin does: the sequences that read through adapters, decide, and write.

`plugin` runs one `session` after another by `node_settings`. A session has these parts:

- `hardware` follows the devices and the driver. While the driver is silent, `recorded` serves what the Node had.
- `starts` answers the kubelet's calls. `kubelet_loop` registers with the kubelet.
- `mig` has the MIG instances.
- `node_loop` updates the Node and the host's files.

May import `adapters`, `decide` and settings. Must never import a client library.
"""
