"""
Objects and scrapes with defaults.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from hamicommon.model import Device, Share
from hamicommon.wire.node_devices import encode_node_devices
from hamicommon.wire.pod_devices import encode_pod_devices
from kubectl_hami.values.cluster import ClusterSnapshot

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
ALLOCATED = "hami.io/vgpu-devices-allocated"
REGISTER = "hami.io/node-nvidia-register"


def a_device(uuid: str = "GPU-a", **fields: Any) -> Device:
    """Return a device of 10 replicas and 16384 MiB."""
    defaults = {"count": 10, "memory_mib": 16384, "core_percent": 100, "type": "NVIDIA-Tesla T4"}
    return Device(uuid, **{**defaults, **fields})


def a_node(name: str = "n1", *devices: Device, **annotations: str) -> dict[str, Any]:
    """Return a ready Node that offers *devices*."""
    return {
        "metadata": {"name": name, "annotations": {REGISTER: encode_node_devices(devices), **annotations}},
        "spec": {},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "allocatable": {"nvidia.com/gpu": str(sum(device.count for device in devices))},
        },
    }


def a_share(uuid: str = "GPU-a", memory_mib: int = 3000, core_percent: int = 25) -> Share:
    """Return a share of an NVIDIA device."""
    return Share(uuid, "NVIDIA", memory_mib, core_percent)


def a_pod(name: str = "p", *shares: Share, node: str = "n1", **parts: Any) -> dict[str, Any]:
    """Return a bound, running Pod whose only container `main` holds *shares*; without *shares* it has no Node."""
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3000"}
    pod: dict[str, Any] = {
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": (NOW - timedelta(minutes=5)).isoformat(),
            "annotations": {ALLOCATED: encode_pod_devices((shares,))} if shares else {},
        },
        "spec": {
            "schedulerName": "hami-scheduler",
            "containers": [{"name": "main", "resources": {"limits": limits}}],
            **({"nodeName": node} if shares else {}),
        },
        "status": {"phase": "Running" if shares else "Pending"},
    }
    for part, value in parts.items():
        pod[part] = {**pod[part], **value}
    return pod


def a_refusal(
    pod: str = "p", message: str = "0 of 1 nodes: 1 lacks 3000 MiB; asked: 1 NVIDIA device"
) -> dict[str, Any]:
    """Return the scheduler's Event about a Pod."""
    return {
        "metadata": {"namespace": "default", "name": f"{pod}.1"},
        "reason": "FilteringFailed",
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": pod, "uid": f"uid-{pod}"},
        "lastTimestamp": NOW.isoformat(),
        "message": message,
    }


def a_scrape(values: Mapping[str, float], **labels: str) -> bytes:
    """Return one sample of each metric, with *labels*; those of a share of `default/p` by default."""
    defaults = {"namespace": "default", "pod": "p", "container": "main", "device_uuid": "GPU-a"}
    text = ",".join(f'{name}="{value}"' for name, value in {**defaults, **labels}.items())
    return "".join(f"{name}{{{text}}} {value}\n" for name, value in values.items()).encode()


def a_cluster(**parts: Any) -> ClusterSnapshot:
    """Return what was read of a cluster called `c`."""
    return ClusterSnapshot(**{"name": "c", "taken_at": NOW, **parts})
