"""
The kubelet device plugin of a Node with NVIDIA devices: gives containers their granted shares.
"""

from importlib.metadata import version

__version__ = version("hami-device-plugin")
