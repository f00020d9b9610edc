"""
What the monitor's watchdog would find about a drilled container.

Owns how the pids that the driver lists become those of the machine: the fake driver lists a process by its pid in the
container. Everything else is read and decided by the monitor's own code.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drills.holders import Host
from hami_monitor.adapters.processes import Processes
from hami_monitor.adapters.region_file import RegionFile, RegionRefusedError, RegionUnusedError
from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.host import DeviceProcess, HostDevice
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.watchdog.findings import Place, Regions, find, grants, uses
from hami_monitor.decide.watchdog.group_use import find_in_groups
from hami_monitor.decide.watchdog.owners import PodOwner
from hamicommon.model import Share
from hamicommon.pod.control_groups import ContainerGroup

KEY = ContainerKey("uid", "main")
_DRIVER = "/libcuda.so.1"
_LIST = """
import sys
import pynvml as n
n.nvmlInit()
device = n.nvmlDeviceGetHandleByUUID(sys.argv[1])
for kind, list_processes in (
    ("alone", n.nvmlDeviceGetComputeRunningProcesses),
    ("client", n.nvmlDeviceGetMPSComputeRunningProcesses),
):
    for process in list_processes(device):
        print(kind, process.pid, process.usedGpuMemory)
"""


@dataclass(frozen=True)
class Listed:
    """What the driver says of the processes on a device, by their pids in the container."""

    used_bytes: Mapping[int, int]
    alone: frozenset[int]
    """Who computes and is no client of MPS."""

    @classmethod
    def on(cls, host: Host) -> "Listed":
        """Ask the driver of *host*."""
        used: dict[int, int] = {}
        alone = set()
        for line in host.run([sys.executable, "-c", _LIST, host.uuid]).splitlines():
            kind, pid, size = line.split()
            used[int(pid)] = int(size)
            if kind == "alone":
                alone.add(int(pid))
        return cls(used, frozenset(alone))


async def findings(
    listed: Listed,
    first_pid: int,
    share: tuple[str, int],
    region: Path | None,
    *,
    grouped: int | None = None,
    in_namespace: bool = False,
) -> frozenset[str]:
    """
    Return the kinds of findings about the container whose first process is *first_pid*.

    *share* is a device and MiB. Without a *region* the container was given no library. *grouped* are the bytes of its
    cgroup, if the driver limits it; *in_namespace* says whether it has a namespace of MPS.
    """
    processes = Processes(find_container=lambda _: ContainerGroup(KEY.pod_uid, "id"))
    known = await processes.find(pid for pid in _below(first_pid) if _uses_driver(pid))
    own = {process.own_pid: pid for pid, process in known.items()}
    known = await processes.look_for_library(known)
    uuid, memory_mib = share
    device = HostDevice(
        0,
        uuid,
        "Fake",
        processes=tuple(
            DeviceProcess(own[pid], used_bytes, computes_alone=pid in listed.alone)
            for pid, used_bytes in listed.used_bytes.items()
            # The server of MPS is not in the container.
            if pid in own
        ),
    )
    without_library = frozenset() if region else frozenset({KEY.container})
    owner = PodOwner("ns", "p", {"id": KEY.container}, without_library)
    shares = {KEY.container: (Share(uuid, "NVIDIA", memory_mib, 0),)}
    pod = MonitoredPod(KEY.pod_uid, "ns", "p", (KEY.container,), frozenset({KEY.container}), shares)
    granted = grants([pod], in_namespaces=frozenset({KEY} if in_namespace else ()))
    owners, regions = {KEY.pod_uid: owner}, _regions(region, uuid)
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
