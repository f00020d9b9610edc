"""
Answer the kubelet when it starts a container.

`calls` takes the calls, and has them answered by `identity`, or by `lock` where the Node needs it. `ahead` makes the
directories of containers before the kubelet calls. `shared_read` and `batch` let many starts share their work.
May import `hardware` and `mig`. Must never decide which share a container gets: its Pod says so.
"""
