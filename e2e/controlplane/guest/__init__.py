"""
A kernel for one machine: user-mode Linux, for what this machine's kernel does not have, such as control groups v2.

`kernel` is the outside of a guest, `boot` its first process. `node` is a guest with containerd and a kubelet, `plugin`
the device plugin in it. May import `machines`. Must never know a cluster.
"""
