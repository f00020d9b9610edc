"""
Find containers that run with a share and were never prepared by a device plugin.

A kubelet that does not know the resource starts such a container all the same: without a device, the library or a
limit. A device plugin makes a container's directory before the container starts, so a missing one tells. The plugin
looks for such containers too, but not while it is away, which is when they come to be.
Neighbours: `group_use` finds the containers with shares, `hami_monitor.adapters.directories` lists the directories.
"""

from collections.abc import Collection, Iterable, Mapping

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.watchdog.findings import Evidence, Finding, Grants, Kind, Place, must_have_library
from hami_monitor.decide.watchdog.owners import PodOwner


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
