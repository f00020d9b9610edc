"""
The kubelet's device IDs: how they are spelled, and which of them to prefer.

`ids` lists the replicas of the Node's devices, `preference` chooses among those that are free.
May import the other decisions and `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
