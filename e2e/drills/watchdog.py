"""
What the monitor's watchdog would find about a drilled container.

Owns how the pids that the driver lists become those of the machine: the fake driver lists a process by its pid in the
container. Everything else is read and decided by the monitor's own code.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from hami_monitor.adapters.processes import Processes
from hami_monitor.adapters.region_file import RegionFile, RegionRefusedError, RegionUnusedError
from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.host import DeviceProcess, HostDevice
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.watchdog.findings import HostProcess, Place, Regions, find, grants, uses
from hami_monitor.decide.watchdog.group_use import find_in_groups
from hami_monitor.decide.watchdog.owners import PodOwner
from hamicommon.model import Share
from hamicommon.pod.control_groups import ContainerGroup

KEY = ContainerKey("uid", "main")
_DRIVER = "/libcuda.so.1"


async def findings(
    listed: Mapping[int, int], first_pid: int, share: tuple[str, int], region: Path | None, grouped: int | None
) -> frozenset[str]:
    """
    Return the kinds of findings about the container whose first process is *first_pid*.

    *listed* is what the driver says: the bytes of each process, by its pid in the container. *share* is a device and
    MiB. Without a *region* the container was given no library. *grouped* are the bytes of its cgroup, if the driver
    limits it.
    """
    processes = Processes(find_container=lambda _: ContainerGroup(KEY.pod_uid, "id"))
    known = await processes.find(pid for pid in _below(first_pid) if _uses_driver(pid))
    own = {process.own_pid: pid for pid, process in known.items()}
    known = await processes.look_for_library(known)
    return _decide({own[pid]: used for pid, used in listed.items()}, known, share, region, grouped)


def _decide(
    used: Mapping[int, int],
    known: Mapping[int, HostProcess],
    share: tuple[str, int],
    region: Path | None,
    grouped: int | None,
) -> frozenset[str]:
    uuid, memory_mib = share
    device = HostDevice(0, uuid, "Fake", processes=tuple(DeviceProcess(pid, count) for pid, count in used.items()))
    without_library = frozenset() if region else frozenset({KEY.container})
    owner = PodOwner("ns", "p", {"id": KEY.container}, without_library)
    shares = {KEY.container: (Share(uuid, "NVIDIA", memory_mib, 0),)}
    pod = MonitoredPod(KEY.pod_uid, "ns", "p", (KEY.container,), frozenset({KEY.container}), shares)
    owners, granted, regions = {KEY.pod_uid: owner}, grants([pod]), _regions(region, uuid)
    found = uses([device], known, owners, ())
    by_process = find(found, granted, regions)
    groups = {} if grouped is None else {Place("ns", "p", KEY.container, uuid, KEY.pod_uid): grouped}
    by_group = find_in_groups(groups, found, owners, granted, regions, by_process)
    return frozenset(evidence.finding.kind.value for evidence in by_process | by_group)


def _regions(path: Path | None, uuid: str) -> Regions:
    if path is None:
        return Regions()
    try:
        region = RegionFile.open(path)
        try:
            sums = region.sums(region.state().slot_count, [0])
            return Regions({KEY: sums.pids}, used_bytes={KEY: {uuid: sums.devices[0].total}})
        finally:
            region.close()
    except RegionUnusedError:
        return Regions()
    except RegionRefusedError:
        return Regions(unread=[KEY])


def _below(pid: int) -> Iterator[int]:
    """Yield *pid* and its descendants."""
    yield pid
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            yield from _below(int(child))


def _uses_driver(pid: int) -> bool:
    return _DRIVER in Path(f"/proc/{pid}/maps").read_text()
