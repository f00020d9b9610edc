"""
The kube-scheduler stand-in: queue, cache, fit, extenders; `main` starts it.
"""
