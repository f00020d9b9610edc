"""
The device manager: plugin registration, allocation, checkpoint, and the PodResources API.

May import `runtime` for CDI names and mounts, and `podspec`. Must never start a container.
"""
