"""
The kubelet and container runtime stand-in of one Node; `main` starts it.
"""
