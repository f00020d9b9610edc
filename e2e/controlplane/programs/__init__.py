"""
The programs of the cluster: which versions, how Go builds them, where they are cached.

`containerd` and `kubernetes` hold module files of upstream programs, `ours` the sources of two small ones. May import
nothing of the other rooms. Must never run what it builds.
"""
