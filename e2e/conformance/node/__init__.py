"""
The behaviours of the kubelet and its container runtime.
"""
