"""
The command `kubectl hami`: what people ask of a cluster that shares devices.

It reads with the caller's rights, through the API server alone, and changes nothing.
"""

from importlib.metadata import version

__version__ = version("kubectl-hami")
