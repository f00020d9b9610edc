"""
What the device plugin does: the sequences that read through adapters, decide, and write.

`session` runs everything from one look at the driver to the next. It starts `node_loop`, which keeps the Node's
annotations and the host's files right, and `calls`, which answers the kubelet through `identity` or `lock`.
May import `adapters`, `decide` and settings. Must never import a client library.
"""
