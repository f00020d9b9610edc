"""
Read a cluster: live, with the caller's rights, or from an archive that somebody else took.

`source` is the interface of both, `kube` the live cluster and the only module that imports the Kubernetes client,
`collect` reads what a picture needs. May import `values`. Must never write to a cluster, run a command in a container,
or decide what something means. Every answer is limited in size and time.
"""
