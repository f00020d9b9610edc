"""
Exports what shares use and runs the feedback loop.
"""

from importlib.metadata import version

__version__ = version("hami-monitor")
