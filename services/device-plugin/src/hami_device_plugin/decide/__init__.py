"""
What the device plugin decides: functions from frozen values to frozen values.

- `probe`: what the Node is, and by which mode, strategy and enforcement it works.
- `inventory`, `replicas`: what it offers; `announcement` and `registration` tell the scheduler and the kubelet.
- `allocate`: what a container gets.
- `health`: which devices are faulty, and which replicas go with them.
- `mig`: which MIG instances are offered, created and destroyed.
- `dra`: what ResourceClaims get, and what the Node's ResourceSlice says.

May import `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
