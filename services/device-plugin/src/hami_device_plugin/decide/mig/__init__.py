"""
What the plugin decides about MIG instances: functions from frozen values to frozen values.

`geometry` describes a GPU and its instances, `offer` what the Node offers of it, `claims` what Pods were promised,
`journal` what this plugin created, `repair` and `realize` which instances to create, adopt or destroy, `startup` how a
GPU becomes ready, `static` what a MIG strategy offers.
May import `allocate`, `inventory` and `hamicommon`. Must never import an adapter, a client library, a clock or a
log, and must never let an instance be destroyed whose user is unclear: it says why, and leaves the instance alone.
"""
