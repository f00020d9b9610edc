"""
The monitor of a Node: exports the use of shares, and runs the feedback loop.
"""

from importlib.metadata import version

__version__ = version("hami-monitor")
