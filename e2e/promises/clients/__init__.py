"""
What people see: `kubectl hami` on a cluster with Pods.
"""
