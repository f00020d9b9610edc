"""
What the Node is, and how it works.

`platform` recognises machines whose devices cannot be shared, `mock` reads devices that do not exist, `links` rates how
well two devices are connected. `mode` says how allocations find their Pod, `strategy` how devices reach containers, and
`enforcement` who limits memory and compute.
May import `inventory` and `hamicommon`. Must never import an adapter, a client library, a clock or a log.
"""
