"""
The formats that the services share, and the run-time parts of a service.

`wire`, `vendors` and the modules beside them are pure: text and bytes in, values out. They must never import `runtime`.
`runtime` has the API client, HTTP server, process and logs. Only services import it. `cli` is the command line.
"""

from importlib.metadata import version

__version__ = version("hamicommon")
