"""
Machines: namespaces of this one, with their own files, control groups and network.

`machine` is the outside of a machine, `boot` its first process, `node` a machine with a kubelet. May import nothing of
the other rooms. Must never know what a service in a machine is for.
"""
