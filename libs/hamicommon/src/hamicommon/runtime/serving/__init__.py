"""
Answer people, probes and Prometheus.

`http` is the server, and the only module with aiohttp's. `connections` bounds what peers take of it, `access` decides
who may scrape, `tls` has its certificate, `exposition` writes metrics,
`samples` keeps many of them at little cost, and `build` is the metric of the version.
May import `hamicommon.errors` and the default in `hamicommon.runtime`. Must never import another room.
"""
