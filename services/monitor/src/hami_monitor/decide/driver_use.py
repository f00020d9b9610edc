"""
Compute what the driver counts for each container, to show it beside what its library counts.

Neighbours: `host` has the driver's numbers, `watchdog` finds the owner of a process, `observation` shows both.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.host import DeviceProcess, HostDevice
from hami_monitor.decide.watchdog.findings import HostProcess, Place
from hami_monitor.decide.watchdog.owners import PodOwner


@dataclass(frozen=True, slots=True)
class DriverUse:
    """The use of one device by one container."""

    processes: int = 0
    used_bytes: int | None = 0
    """Of the processes, or of the control group if that has more; None if the driver says neither."""
    busy_ratio: float | None = 0.0
    """Device time of the processes' kernels since the reading before; None if the device does not say it."""
    is_limited: bool = False
    """Whether the driver limits the memory of the container's control group."""


@dataclass(frozen=True, slots=True)
class DeviceUses:
    """The use of one device by all containers."""

    containers: Mapping[ContainerKey, DriverUse] = field(default_factory=dict)
    unused: DriverUse = DriverUse()
    """Of any other container."""

    def of(self, key: ContainerKey) -> DriverUse:
        """Return the use by the container *key*."""
        return self.containers.get(key, self.unused)


def driver_uses(
    devices: Iterable[HostDevice],
    processes: Mapping[int, HostProcess],
    owners: Mapping[str, PodOwner],
    group_use: Mapping[Place, int] = MappingProxyType({}),
) -> dict[str, DeviceUses]:
    """
    Return the uses of each of *devices* by UUID.

    *processes* has those that the driver listed by pid, *owners* the Pods by UID, and *group_use* the bytes that the
    driver counts for control groups.
    """
    grouped: dict[str, dict[ContainerKey, int]] = defaultdict(dict)
    for place, used_bytes in group_use.items():
        grouped[place.device_uuid][ContainerKey(place.pod_uid, place.container)] = used_bytes
    return {device.uuid: _device_uses(device, processes, owners, grouped[device.uuid]) for device in devices}


def _device_uses(
    device: HostDevice,
    processes: Mapping[int, HostProcess],
    owners: Mapping[str, PodOwner],
    grouped: Mapping[ContainerKey, int],
) -> DeviceUses:
    listed: dict[ContainerKey, list[DeviceProcess]] = defaultdict(list)
    for one in device.processes:
        key = _container(processes.get(one.pid), owners)
        if key is not None:
            listed[key].append(one)
    # A device in MIG mode has no utilization, and then none of single processes.
    has_samples = device.utilization_percent is not None
    return DeviceUses(
        {
            key: _sum(listed.get(key, ()), has_samples=has_samples, group_bytes=grouped.get(key))
            for key in listed.keys() | grouped.keys()
        },
        _sum((), has_samples=has_samples),
    )


def _container(process: HostProcess | None, owners: Mapping[str, PodOwner]) -> ContainerKey | None:
    if process is None or process.group is None or process.group.pod_uid not in owners:
        return None
    name = owners[process.group.pod_uid].containers.get(process.group.container_id)
    return None if name is None else ContainerKey(process.group.pod_uid, name)


def _sum(found: Iterable[DeviceProcess], *, has_samples: bool, group_bytes: int | None = None) -> DriverUse:
    processes, least_bytes = tuple(found), group_bytes or 0
    used = [process.used_bytes for process in processes if process.used_bytes is not None]
    busy_percent = sum(process.busy_percent or 0.0 for process in processes)
    return DriverUse(
        processes=len(processes),
        used_bytes=max(sum(used), least_bytes) if used or least_bytes or not processes else None,
        busy_ratio=busy_percent / 100 if has_samples else None,
        is_limited=group_bytes is not None,
    )
