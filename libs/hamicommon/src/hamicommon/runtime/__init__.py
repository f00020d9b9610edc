"""
The run-time parts of a service: API client, reflector, HTTP server, NVML, process, logs, flags.

Only services import it. `kube`, `http` and `nvml` are the only modules that import their client library. A module
here must never know a service.
"""
