"""
The contract the services share, and how a service lives.

Everything but `runtime` and the command line is pure: bytes and text in, values out.
`runtime` is for services only: API client, HTTP server, process life, logs.
"""

from importlib.metadata import version

__version__ = version("hamicommon")
