"""
A Kubernetes small enough to read, speaking the real protocols over real sockets.

`apiserver`, `kubescheduler` and `kubelet` are processes of their own: `python -m minicluster COMPONENT`. They share
`client`, and the arithmetic of `quantity` and `podrequests`. No service is imported here: services are peers.
"""
