"""
The container runtime: CDI, mounts, namespaces, and a shim process for each container.

May import `podspec`. Must never decide whether a container should run, and never speak to the API server.
"""
