"""
The contract the services share, and how a service lives.

`wire`, `vendors`, `model`, `quantity` and `config` are pure: bytes and text in, frozen values out.
`runtime` is for services only: API client, HTTP server, process life, logs.
"""

from importlib.metadata import version

__version__ = version("hamicommon")
