"""
The behaviours of Kubernetes that the services rely on, tested on the embedded cluster and on a real one.
"""
