"""
Values with defaults for the tests of decisions.
"""

from typing import Any

from hami_device_plugin.decide.allocate.allocation import Container, Grant, GrantPolicy, Library, allocate
from hami_device_plugin.decide.allocate.owner import Allocated
from hamicommon.model import ContainerShares, Share
from hamicommon.pod.reading import Pod, read_pod
from hamicommon.vendors import nvidia
from hamicommon.vendors.nvidia import NvidiaConfig

RESOURCE = "nvidia.com/gpu"
VENDOR = nvidia.vendor(NvidiaConfig(resource_count_name=RESOURCE))
SHARES = (Share("GPU-a", "NVIDIA", 1000, 25), Share("GPU-b", "NVIDIA", 2000, 50))


def share(uuid: str = "GPU-a", memory_mib: int = 1000) -> Share:
    """Return a share of one device."""
    return Share(uuid, "NVIDIA", memory_mib, 10)


def shares(count: int) -> ContainerShares:
    """Return *count* shares."""
    return tuple(share(f"GPU-{number}") for number in range(count))


def entry(pod: str, name: str, *replicas: str, cdi: str = "hami.io/vgpu=a-1") -> Allocated:
    """Return the checkpoint's entry of one container."""
    return Allocated(pod, name, RESOURCE, frozenset(replicas), (cdi,))


def a_pod(annotations: dict[str, str] | None = None, *, phase: str = "Pending", **spec: Any) -> Pod:
    """Return a Pod of one container that requests one device."""
    item = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations or {}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {RESOURCE: "1"}}}]} | spec,
        "status": {"phase": phase},
    }
    return read_pod(item, (VENDOR,))


def a_policy(**changes: object) -> GrantPolicy:
    """Return a policy below /usr/local."""
    return GrantPolicy(**({"hook_path": "/usr/local"} | changes))  # type: ignore[arg-type]


def a_grant(policy: GrantPolicy, *, is_hamis_library: bool = False) -> Grant:
    """Return what a container of two shares gets."""
    library = Library("/lib.so", is_hamis_library)
    return allocate(SHARES, Container("uid", "main"), policy, library=library, region="r")
