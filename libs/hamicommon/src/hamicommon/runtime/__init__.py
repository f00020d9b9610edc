"""
The run-time parts of a service. Only services import it, and nothing here may know a service.

| Room | Is for |
|---|---|
| `api` | the API server: client, reflector, Events |
| `serving` | what a service answers: HTTP, certificates, metrics |
| `program` | how a service runs: flags, settings, logs, signals |
| `host` | the machine: its files, NVML, work that may hang |
| `kubelet_api` | the generated stubs of the kubelet's APIs |

No room imports another.
"""

MAX_CONNECTIONS = 256
"""Open connections of a listener, if no flag says otherwise: those of ten API servers, which keep 25 idle ones each."""
