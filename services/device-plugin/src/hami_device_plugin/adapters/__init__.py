"""
What the device plugin reads and writes: one module for each part of the outside world.

`kube` is the API server, `kubelet` its gRPC APIs, `checkpoint` its device checkpoint, `nvml` the driver, `cdi_files`
the CDI directory, `library` the hook directory, and `files` the file system below the last two.
May import `decide` and settings. Must never decide. Must never import `serve`, or one another except `files`.
"""
