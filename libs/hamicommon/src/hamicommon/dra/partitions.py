"""
The MIG instances that a GPU can be cut into, as devices of a ResourceSlice.

Each allowed profile at each of its placements is a device. It consumes counters of its GPU, one for each memory slice
of its placement, so kube-scheduler never allocates two that overlap. MIG allows all instances that do not overlap.
Counters and devices are in different slices of a pool, which Kubernetes demands since 1.35.
Source: https://github.com/kubernetes/enhancements/tree/master/keps/sig-scheduling/4815-dra-partitionable-devices
Source: https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu/blob/main/cmd/gpu-kubelet-plugin/partitions.go
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hamicommon.dra.names import CORES, MEMORY, MEMORY_SLICE, NVIDIA_DOMAIN, OCCUPIED_TAINT, PARTITION_TYPE
from hamicommon.dra.slices import DEVICES_MAX, OfferedDevice, encode_device, encode_devices, encode_part, mib_quantity
from hamicommon.dra.tokens import encode_tokens
from hamicommon.model import MigAllocation, MigPlacement, MigProfile, Object, Share

COUNTER_SETS_MAX: Final = 8
"""Of one slice."""
_UUIDS: Final = ("uuid", f"{NVIDIA_DOMAIN}/uuid")
"""Attributes of a GPU that an instance does not have: it gets a UUID when it is created."""


@dataclass(frozen=True, slots=True)
class Partition:
    """One profile at one placement."""

    gpu: OfferedDevice
    profile: MigProfile
    placement: MigPlacement
    multiprocessors: int
    is_occupied: bool = False
    """Whether something stands in its place that is of no claim, so that it cannot be created."""

    @property
    def name(self) -> str:
        """Its name in the slice, which depends on nothing that a setting changes."""
        return f"hami-mig-{self.gpu.description.minor}-{self.profile.slice_count}g-{self.placement.start}"

    @property
    def faults(self) -> tuple[str, ...]:
        """Those of its GPU."""
        return self.gpu.faults

    @property
    def allocation(self) -> MigAllocation:
        """Return it as the instance that its user is promised."""
        return MigAllocation(0, 0, self.gpu.device.id, self.profile.name, self.placement)

    @property
    def share(self) -> Share:
        """Return what its user has of the GPU."""
        device = self.gpu.device
        return Share(device.id, device.vendor, self.profile.memory_mib, self.profile.core_percent)


Offered = OfferedDevice | Partition


def encode_pool(
    node: Mapping[str, Any], offered: Sequence[Offered], generation: int, tokens: int = 0
) -> tuple[Object, ...]:
    """
    Return the slices that offer *offered*, devices or partitions, and so many *tokens* on *node*.

    Raises:
        EncodeError: the Node has no UID, or there are more devices than one slice may have.
    """
    partitions = [one for one in offered if isinstance(one, Partition)]
    devices = [one for one in offered if isinstance(one, OfferedDevice)]
    parts = (*(_parts(partitions) if partitions else (encode_devices(devices),)), *encode_tokens(tokens))
    return tuple(encode_part(node, part, generation, len(parts)) for part in parts)


def _parts(partitions: Sequence[Partition]) -> tuple[Object, ...]:
    """Return what the slices of a pool with *partitions* contain, one entry a slice: counters, then devices."""
    sets: dict[str, Object] = {}
    for partition in partitions:
        found = sets.setdefault(_counter_set(partition.gpu), {})
        found |= _memory_slices(partition.placement)
    counters = [{"name": name, "counters": dict(sorted(found.items()))} for name, found in sets.items()]
    return (
        *({"sharedCounters": some} for some in _chunks(counters, COUNTER_SETS_MAX)),
        *({"devices": some} for some in _chunks([encode_partition(one) for one in partitions], DEVICES_MAX)),
    )


def encode_partition(partition: Partition) -> Object:
    """Return one entry of a slice's `devices`."""
    gpu = encode_device(partition.gpu)
    parent, profile = {"string": partition.gpu.device.id}, {"string": partition.profile.name}
    taints = list(gpu.get("taints", ()))
    if partition.is_occupied:
        taints.append({"key": OCCUPIED_TAINT, "effect": "NoSchedule"})
    return {
        "name": partition.name,
        "attributes": {name: value for name, value in gpu["attributes"].items() if name not in _UUIDS}
        | {
            "type": {"string": PARTITION_TYPE},
            "parentUUID": parent,
            "profile": profile,
            f"{NVIDIA_DOMAIN}/type": {"string": PARTITION_TYPE},
            f"{NVIDIA_DOMAIN}/parentUUID": parent,
            f"{NVIDIA_DOMAIN}/profile": profile,
        },
        "capacity": {
            CORES: {"value": str(partition.profile.core_percent)},
            MEMORY: {"value": mib_quantity(partition.profile.memory_mib)},
            "multiprocessors": {"value": str(partition.multiprocessors)},
        },
        "consumesCounters": [
            {"counterSet": _counter_set(partition.gpu), "counters": _memory_slices(partition.placement)}
        ],
        **({"taints": taints} if taints else {}),
    }


def _chunks(entries: Sequence[Object], size: int) -> Iterator[Sequence[Object]]:
    for start in range(0, len(entries), size):
        yield entries[start : start + size]


def _counter_set(gpu: OfferedDevice) -> str:
    return f"{gpu.name}-counter-set"


def _memory_slices(placement: MigPlacement) -> Object:
    return {
        f"{MEMORY_SLICE}{number}": {"value": "1"} for number in range(placement.start, placement.start + placement.size)
    }
