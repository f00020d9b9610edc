"""
Admits Pods that ask for a share of a device.
"""
