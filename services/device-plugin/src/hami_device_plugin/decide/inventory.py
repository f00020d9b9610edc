"""
Decide which devices this Node offers, and how much of each.

Owns scaling, filtering, and which devices stay although the driver does not show them.
Neighbours: `nvml` finds devices, `config` makes the policy, `replicas` lists them for the kubelet,
`hamicommon.wire.node_devices` encodes the annotation.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/register.go
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from hamicommon.model import Device

VENDOR_PREFIX = "NVIDIA"
HAMI_CORE, MIG, MPS = "hami-core", "mig", "mps"
"""HAMi's names of the operating modes of a Node."""
INSTANCE_PREFIX = "MIG-"
INT32_MAX = 2**31 - 1


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
    reserved_bytes: int = 0
    """Of its memory, what the driver keeps for itself."""


@dataclass(frozen=True, slots=True)
class SharingPolicy:
    """How a device is offered."""

    split_count: int
    memory_scaling: float = 1.0
    core_scaling: float = 1.0
    preconfigured_memory_mib: int = 0
    """Memory of devices whose driver does not know it; 0 leaves them out."""
    mode: str = HAMI_CORE
    is_numa_reported: bool = False
    """Whether the kubelet gets each replica's NUMA node."""
    spelling: str = "hami"
    """How replica IDs are spelled, a key of `replicas.ids.SEPARATORS`."""
    excluded_uuids: frozenset[str] = frozenset()
    excluded_indices: frozenset[int] = frozenset()
    claim_uuids: frozenset[str] = frozenset()
    claim_indices: frozenset[int] = frozenset()

    def excludes(self, uuid: str, index: int) -> bool:
        """Return whether the device of this UUID and index is left out."""
        return uuid in self.excluded_uuids or index in self.excluded_indices

    def is_for_claims(self, device: Device) -> bool:
        """Return whether the settings of the Node keep *device* for ResourceClaims."""
        return device.id in self.claim_uuids or device.index in self.claim_indices


def inventory(found: Iterable[FoundDevice], policy: SharingPolicy) -> tuple[Device, ...]:
    """
    Return the devices of *found* that *policy* offers, by index.

    Devices of unknown memory and filtered devices are left out.
    """
    offered = (_offer(device, policy) for device in sorted(found, key=lambda device: device.index))
    return tuple(device for device in offered if device is not None)


def missing_devices(
    known: Sequence[Device],
    found: Collection[str],
    unread: Collection[int],
    faulty: Collection[str],
    policy: SharingPolicy,
) -> tuple[Device, ...]:
    """
    Return the *known* devices that are not among the UUIDs *found*, but stay.

    A device stays, as unhealthy, if the driver has one at its index that cannot be read, or if it had a fault before:
    its Pods are still explained, and the scheduler does not grant it. Without either, it was taken out of the Node.
    """
    return tuple(
        replace(device, healthy=False)
        for device in known
        if device.id not in found
        and (device.index in unread or device.id in faulty)
        and not policy.excludes(device.id, device.index)
    )


def without_reserve(found: Iterable[FoundDevice]) -> tuple[FoundDevice, ...]:
    """
    Return *found* without the memory that the driver keeps for itself.

    Where the driver holds limits, shares that add up to all memory would fail below their limits.
    """
    return tuple(
        device
        if device.memory_bytes is None
        else replace(device, memory_bytes=max(device.memory_bytes - device.reserved_bytes, 0), reserved_bytes=0)
        for device in found
    )


def with_health(devices: Sequence[Device], unhealthy: frozenset[str]) -> tuple[Device, ...]:
    """Return *devices*, with `healthy` false for the UUIDs in *unhealthy*."""
    return tuple(replace(device, healthy=device.id not in unhealthy) for device in devices)


def with_doubled_vendor(devices: Sequence[Device]) -> tuple[Device, ...]:
    """Return *devices* with the type that plugins up to HAMi 2.7.1 wrote, always prefixed: `NVIDIA-NVIDIA A100`."""
    prefix = f"{VENDOR_PREFIX}-"
    return tuple(
        device if device.type.startswith(prefix) else replace(device, type=prefix + device.type) for device in devices
    )


def is_instance(uuid: str) -> bool:
    """
    Return whether *uuid* is that of a MIG instance.

    >>> is_instance("MIG-7f3b"), is_instance("GPU-7f3b")
    (True, False)
    """
    return uuid.startswith(INSTANCE_PREFIX)


def _offer(found: FoundDevice, policy: SharingPolicy) -> Device | None:
    if is_instance(found.uuid):
        # Instances are filtered where they are found, because an excluded index is a GPU's.
        policy = SharingPolicy(1, mode=policy.mode)
    memory_mib = _memory_mib(found, policy)
    if policy.excludes(found.uuid, found.index) or memory_mib <= 0:
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
