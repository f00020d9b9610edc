"""
Hands granted shares to containers: the kubelet device plugin of a Node with NVIDIA devices.
"""

from importlib.metadata import version

__version__ = version("hami-device-plugin")
