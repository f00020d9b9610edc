"""
Compute a container's use of the devices it was granted, from its region.

Owns which of a region's numbers count, and how many processes one scrape may read.
Neighbours: `grants` says what was granted, `regions` reads, `observation` shows the usage.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/cmd/vGPUmonitor/metrics.go
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from hami_monitor.decide.grants import Grant
from hamicommon.wire.region.records import DeviceRecords, Unreached, WaitRecord
from hamicommon.wire.region.sums import DeviceSums, ProcessSums, RegionState

SLOTS_EACH_SCRAPE = 16384
"""
Most process slots, times devices, that one scrape reads: 110 containers with 64 processes each take less than half.

To read so many takes some 30 ms.
"""
_SIGN_BIT = 1 << 63

Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What one container uses, as its region says."""

    devices: Mapping[str, DeviceSums] = field(default_factory=dict, hash=False)
    """By UUID: those of its devices that the region names."""
    processes: int = 0
    pids: frozenset[int] = frozenset()
    """The pids of its processes, in the container and on the host."""
    last_kernel_seconds: int | None = None
    """Unix time of the last launch; None before the first, and if the layout has no such field."""
    records: Mapping[str, DeviceRecords] = field(default_factory=dict, hash=False)
    """By UUID; empty if the container's library keeps none."""
    waits: tuple[WaitRecord, ...] = ()
    """For the reasons for which the container's library has waited."""
    unreached: Unreached = field(default_factory=Unreached)
    """What the container's library does not reach."""
    is_blocked: bool = False
    """Whether its launches wait for a container of higher priority."""


def granted_devices(region: RegionState, grant: Grant) -> dict[int, str]:
    """
    Return the UUID of each device of *region* that *grant* has, by the region's index.

    Any other name is ignored, and so is a second device of the same name.
    """
    granted = {share.uuid.encode(): share.uuid for share in grant.shares}
    return {index: granted.pop(name) for index, name in enumerate(region.uuids) if name in granted}


def affordable(costs: Mapping[Key, int], most: int = SLOTS_EACH_SCRAPE) -> list[Key]:
    """
    Return the keys of *costs* that fit into *most* together, the cheapest first.

    So a container with countless processes is left out itself, and no other.
    """
    chosen, left = [], most
    for key, cost in sorted(costs.items(), key=lambda item: item[1]):
        left -= cost
        if left < 0:
            break
        chosen.append(key)
    return chosen


def container_usage(region: RegionState, sums: ProcessSums, names: Mapping[int, str]) -> ContainerUsage:
    """Return the use of a container whose granted devices are *names*, by the region's index."""
    last = region.last_kernel_time
    return ContainerUsage(
        devices={uuid: sums.devices[index] for index, uuid in names.items()},
        processes=sums.processes,
        pids=sums.pids,
        last_kernel_seconds=last if last is not None and 0 < last < _SIGN_BIT else None,
        records={} if region.records is None else {uuid: region.records[index] for index, uuid in names.items()},
        waits=region.waits,
        unreached=region.unreached,
        is_blocked=region.recent_kernel < 0,
    )
