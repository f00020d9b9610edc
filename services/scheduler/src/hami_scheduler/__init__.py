"""
Places shares on devices: an extender of kube-scheduler.
"""

from importlib.metadata import version

__version__ = version("hami-scheduler")
