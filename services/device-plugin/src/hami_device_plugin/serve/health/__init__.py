"""
Follow how the devices are, and offer each accordingly.

May import `probe` and `mig`. Must never answer the kubelet, nor write a spec.
"""
