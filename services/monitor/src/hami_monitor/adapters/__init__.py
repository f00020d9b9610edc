"""
What the monitor reads and writes: one module for each part of the outside world.

`kube` is the API server, `nvml` the driver, `directories` the container directories, `regions` their open region files.
`region_file` is one of them, and `atomic_store` the only way to write into it. `processes` is the Node's `/proc`.
May import `decide` and settings. Must never decide, and must never import `serve`.
"""
