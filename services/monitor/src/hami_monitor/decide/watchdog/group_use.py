"""
Compare what the driver counts for the control groups of containers with grants and regions, and find containers that no
device plugin has prepared.

A driver that limits the memory of a control group also says how much the group has, whatever its processes are called
and whether the driver lists them. A kubelet that does not know the resource starts a container all the same: without a
device, the library or a limit. A device plugin makes a container's directory before the container starts, so a missing
one tells. The plugin looks for such containers too, but not while it is away, which is when they come to be.
Neighbours: `findings` compares process by process, `hamicommon.runtime.host.control_groups` finds the groups,
`hami_monitor.adapters.directories` lists the directories.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.watchdog.findings import (
    TOLERANCE_BYTES,
    Evidence,
    Finding,
    Grants,
    Kind,
    Place,
    Regions,
    Use,
    limit_bytes,
    limited_devices,
    must_have_library,
)
from hami_monitor.decide.watchdog.owners import PodOwner
from hamicommon.pod.control_groups import ContainerGroup

_MIB = 1 << 20
_OUTSIDE = (Kind.LIBRARY_NOT_LOADED, Kind.NOT_IN_REGION)


def limited_places(
    granted: Grants, owners: Mapping[str, PodOwner], exempt: Collection[str], devices: Collection[str]
) -> dict[Place, ContainerGroup]:
    """Return the containers of *owners* with a share of one of *devices*, each with its control group."""
    found = {}
    for uid, owner in owners.items():
        if owner.is_ended or owner.namespace in exempt:
            continue
        for container_id, container in owner.containers.items():
            group = ContainerGroup(uid, container_id)
            for device_uuid in limited_devices(ContainerKey(uid, container), granted).intersection(devices):
                found[Place(owner.namespace, owner.name, container, device_uuid, uid)] = group
    return found


def find_in_groups(
    used: Mapping[Place, int],
    found: Sequence[Use],
    owners: Mapping[str, PodOwner],
    granted: Grants,
    regions: Regions,
    by_process: Collection[Evidence],
    margin_mib: int = 0,
) -> dict[Evidence, str]:
    """
    Return what is found otherwise than *granted*, each with one sentence for people.

    *used* has what the driver counts for the control group of a container, in bytes. *found* are the processes that it
    lists, and *by_process* what was found about those already. The driver was told to allow *margin_mib* above a share.
    """
    told = {one.finding.place for one in by_process if one.finding.kind in _OUTSIDE}
    # An MPS server works for its clients, and has no region.
    told |= {use.place for use in found if use.process.is_mps_server}
    processes = Counter(use.place for use in found)
    above = _above_grant(used, granted, margin_mib * _MIB)
    beside = _beside_region(used, processes, owners, granted, regions)
    return {**dict(above), **{one: text for one, text in beside if one.finding.place not in told}}


def _above_grant(used: Mapping[Place, int], granted: Grants, margin_bytes: int) -> Iterator[tuple[Evidence, str]]:
    # The driver was told to allow no byte more, so somebody has changed its limit.
    for place, used_bytes in used.items():
        most = limit_bytes(place, granted)
        if most and used_bytes > most + margin_bytes:
            yield (
                Evidence(Finding(Kind.MEMORY_ABOVE_GRANT, place)),
                f"Container {place.container} has {used_bytes // _MIB} MiB of device {place.device_uuid} by its "
                f"control group, its share is {most // _MIB} MiB",
            )


def _beside_region(
    used: Mapping[Place, int],
    processes: Mapping[Place, int],
    owners: Mapping[str, PodOwner],
    granted: Grants,
    regions: Regions,
) -> Iterator[tuple[Evidence, str]]:
    for place, used_bytes in used.items():
        key = ContainerKey(place.pod_uid, place.container)
        if key in regions.unread or not must_have_library(place, owners[place.pod_uid], granted):
            continue
        counted = regions.used_bytes.get(key, {}).get(place.device_uuid, 0)
        if used_bytes > counted + TOLERANCE_BYTES * max(processes[place], 1):
            yield (
                Evidence(Finding(Kind.NOT_IN_REGION, place)),
                f"Container {place.container} has {used_bytes // _MIB} MiB of device {place.device_uuid} by its "
                f"control group, and only {counted // _MIB} MiB are in its region, so the rest is not counted",
            )


def find_unprepared(
    places: Iterable[Place],
    owners: Mapping[str, PodOwner],
    granted: Grants,
    directories: Collection[ContainerKey] | None,
) -> dict[Evidence, str]:
    """
    Return those of *places* whose container has no directory, each with one sentence for people.

    *places* are shares of containers that were started, *directories* those that exist; None if that is unknown.
    """
    return {
        Evidence(Finding(Kind.WITHOUT_DEVICES, place)): (
            f"Container {place.container} has a share of device {place.device_uuid} and no directory for its library: "
            "the kubelet started it without asking the device plugin, so it has no device and no limit. Delete the Pod"
        )
        for place in places
        if directories is not None
        and ContainerKey(place.pod_uid, place.container) not in directories
        and must_have_library(place, owners[place.pod_uid], granted)
    }
