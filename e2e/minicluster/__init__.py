"""
A Kubernetes small enough to read, speaking the real protocols over real sockets.

`apiserver`, `kubescheduler` and `kubelet` are separate processes: `python -m minicluster COMPONENT`. None of them
imports another; they share the modules beside them: `client`, `selection`, `quantity`, `podrequests`, `pids`. Must
never import a service or the packages around it: services are peers. README.md says what is in and what is left out.
"""
