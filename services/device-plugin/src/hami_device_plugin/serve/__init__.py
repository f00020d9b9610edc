"""
What the device plugin does: the sequences that read through adapters, decide, and write.

`plugin` runs one `session` after another. A session starts `calls`, which answers the kubelet through `identity` or
`lock`, `kubelet_loop`, which registers with the kubelet, `link_loop`, which rates the links between devices, and
`node_loop`, which updates the Node and the host's files.
May import `adapters`, `decide` and settings. Must never import a client library.
"""
