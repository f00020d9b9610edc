"""
The behaviours of API server, kubectl and kube-scheduler.
"""
