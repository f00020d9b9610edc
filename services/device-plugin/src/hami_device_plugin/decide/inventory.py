"""
Decide what this Node offers: devices in its annotation, replicas to the kubelet.

Owns scaling, filtering and the replica IDs.
Neighbours: `nvml` finds devices, `config` makes the policy, `hamicommon.wire.node_devices` encodes the annotation.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/register.go
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hamicommon.model import Device

VENDOR_PREFIX = "NVIDIA"
MODE_HAMI_CORE = "hami-core"
INT32_MAX = 2**31 - 1
UUID_DASHES = 5
"""Dashes in `GPU-<UUID>`; a replica ID has one more."""


@dataclass(frozen=True, slots=True)
class FoundDevice:
    """One device as its driver describes it."""

    uuid: str
    index: int
    name: str
    memory_bytes: int | None
    """None if the driver does not know, as on devices that share the host's memory."""
    numa: int = 0
    minor: int = 0
    """N of /dev/nvidiaN."""


@dataclass(frozen=True, slots=True)
class SharingPolicy:
    """How a device is offered."""

    split_count: int
    memory_scaling: float = 1.0
    core_scaling: float = 1.0
    preconfigured_memory_mib: int = 0
    """Memory of devices whose driver does not know it; 0 leaves them out."""
    mode: str = MODE_HAMI_CORE
    is_numa_reported: bool = False
    """Whether the kubelet gets each replica's NUMA node."""
    excluded_uuids: frozenset[str] = frozenset()
    excluded_indices: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Replica:
    """One device ID as the kubelet sees it."""

    id: str
    is_healthy: bool
    numa: int | None = None
    """None if the kubelet shall not align by it."""


def inventory(found: Iterable[FoundDevice], policy: SharingPolicy) -> tuple[Device, ...]:
    """
    Return the devices of *found* that *policy* offers, by index.

    Devices of unknown memory and filtered devices are left out.
    """
    offered = (_offer(device, policy) for device in sorted(found, key=lambda device: device.index))
    return tuple(device for device in offered if device is not None)


def replicas(devices: Sequence[Device], policy: SharingPolicy) -> tuple[Replica, ...]:
    """
    Return the kubelet's list: `<UUID>-<i>` for each replica of each device.

    The spelling is HAMi's, because the kubelet's checkpoint on an upgraded Node contains it.

    >>> gpu = Device(id="GPU-a", count=2, memory_mib=1, core_percent=100, type="NVIDIA T4")
    >>> [replica.id for replica in replicas([gpu], SharingPolicy(split_count=2))]
    ['GPU-a-0', 'GPU-a-1']
    """
    return tuple(
        Replica(f"{device.id}-{number}", device.healthy, device.numa if policy.is_numa_reported else None)
        for device in devices
        for number in range(device.count)
    )


def device_of_replica(replica_id: str) -> str:
    """
    Return the UUID of the device that a replica belongs to.

    NVIDIA's time-slicing IDs have `::` before the number, HAMi's a sixth dash.

    >>> device_of_replica("GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a8-9")
    'GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a8'
    >>> device_of_replica("GPU-7::3"), device_of_replica("GPU-42bacc-6")
    ('GPU-7', 'GPU-42bacc-6')
    """
    if "::" in replica_id:
        return replica_id.split("::", 1)[0]
    uuid, _, number = replica_id.rpartition("-")
    return uuid if uuid.count("-") == UUID_DASHES and _is_number(number) else replica_id


def with_health(devices: Sequence[Device], unhealthy: frozenset[str]) -> tuple[Device, ...]:
    """
    Return *devices*, with `healthy` false for the UUIDs in *unhealthy*.
    """
    return tuple(replace(device, healthy=device.id not in unhealthy) for device in devices)


def with_doubled_vendor(devices: Sequence[Device]) -> tuple[Device, ...]:
    """
    Return *devices* with the type that plugins up to HAMi 2.7.1 wrote, always prefixed: `NVIDIA-NVIDIA A100`.
    """
    return tuple(
        replace(device, type=f"{VENDOR_PREFIX}-{device.type}") if not _is_prefixed(device.type) else device
        for device in devices
    )


def _offer(found: FoundDevice, policy: SharingPolicy) -> Device | None:
    memory_mib = _memory_mib(found, policy)
    is_excluded = found.uuid in policy.excluded_uuids or found.index in policy.excluded_indices
    if is_excluded or memory_mib <= 0:
        return None
    return Device(
        id=found.uuid,
        index=found.index,
        count=policy.split_count,
        memory_mib=memory_mib,
        core_percent=int(policy.core_scaling * 100),
        type=found.name if found.name.startswith(VENDOR_PREFIX) else f"{VENDOR_PREFIX}-{found.name}",
        numa=max(found.numa, 0),
        mode=policy.mode,
        healthy=True,
    )


def _memory_mib(found: FoundDevice, policy: SharingPolicy) -> int:
    # Binary floating point on purpose: HAMi multiplies this way, and a scheduler may compare.
    physical_mib = policy.preconfigured_memory_mib if found.memory_bytes is None else found.memory_bytes // 2**20
    return min(int(physical_mib * policy.memory_scaling), INT32_MAX)


def _is_prefixed(type_: str) -> bool:
    return type_.startswith(f"{VENDOR_PREFIX}-")


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
