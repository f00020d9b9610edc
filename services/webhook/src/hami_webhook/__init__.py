"""
Admits Pods that ask for a share of a device.
"""

from importlib.metadata import version

__version__ = version("hami-webhook")
