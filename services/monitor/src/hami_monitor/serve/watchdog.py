"""
Compare the driver's processes with grants and regions, after each reading of the driver.

The order matters. The driver was read first, regions and `/proc` are read after it: so an honest process that the
driver lists is in its region by then, unless it has ended, and then it is not in `/proc` either.
Keeps only what a few readings tell again after a restart.
Neighbours: `driver_watch` reads the driver, `hami_monitor.decide.watchdog` decides.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

import structlog

from hami_monitor.adapters.kube import Events, Pods
from hami_monitor.adapters.processes import Processes
from hami_monitor.config import Config
from hami_monitor.decide.host import HostDevice
from hami_monitor.decide.watchdog.confirmation import Seen, see, to_report
from hami_monitor.decide.watchdog.findings import (
    EVENT_REASONS,
    Evidence,
    Finding,
    Grants,
    HostProcess,
    Kind,
    Place,
    Regions,
    Use,
    find,
    grants,
    uses,
    with_library,
)
from hami_monitor.decide.watchdog.group_use import find_in_groups, find_unprepared, limited_places
from hami_monitor.decide.watchdog.owners import PodOwner
from hami_monitor.metrics.watchdog_families import WatchdogStatus
from hami_monitor.serve.evictions import Evictions
from hami_monitor.serve.rounds import Rounds
from hamicommon.pod.control_groups import ContainerGroup
from hamicommon.runtime.host.control_groups import ControlGroups
from hamicommon.runtime.host.nvml import NvmlError
from hamicommon.runtime.host.records import IN_NAMESPACE, UNPRELOADED
from hamicommon.runtime.host.worker import HangError

logger = structlog.get_logger()


ReadUse = Callable[[str, Collection[str]], Awaitable[Mapping[str, int]]]
"""Returns the bytes of a device that each of some cgroups has, if it has a limit there."""


class GroupReader:
    """The control groups of the Node, and the driver's numbers of them."""

    def __init__(self, cgroup_root: str, used_by_cgroup: ReadUse) -> None:
        """Look for the groups below *cgroup_root*, and ask *used_by_cgroup* about them."""
        self._groups = ControlGroups(cgroup_root)
        self._used_by_cgroup = used_by_cgroup

    async def read(self, places: Mapping[Place, ContainerGroup]) -> dict[Place, int]:
        """
        Return the bytes that the driver counts for each of *places*, by the control group that it is given with.

        Places without a limit of the driver are left out.

        Raises:
            NvmlError: the driver does not answer.
        """
        folders = await asyncio.to_thread(self._groups.find, frozenset(places.values()))
        by_device: dict[str, dict[Place, str]] = defaultdict(dict)
        for place, group in places.items():
            if group in folders:
                by_device[place.device_uuid][place] = folders[group]
        used: dict[Place, int] = {}
        for device_uuid, wanted in by_device.items():
            found = await self._used_by_cgroup(device_uuid, frozenset(wanted.values()))
            used |= {place: found[folder] for place, folder in wanted.items() if folder in found}
        return used


class Watchdog:
    """The findings on one Node."""

    def __init__(
        self,
        config: Config,
        pods: Pods,
        rounds: Rounds,
        processes: Processes,
        events: Events,
        used_by_cgroup: ReadUse,
        monotonic_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare; *used_by_cgroup* asks the driver, *monotonic_seconds* tells how long a finding has lasted."""
        self._exempt = frozenset(config.watchdog_exempt_namespaces)
        self._margin_mib = config.memory_margin_mib
        self._pods = pods
        self._rounds = rounds
        self._processes = processes
        self._events = events
        self._groups = GroupReader(config.cgroup_root, used_by_cgroup)
        self.evictions = Evictions(pods, events, config.watchdog_evict)
        self._monotonic_seconds = monotonic_seconds
        self.processes: Mapping[int, HostProcess] | None = None
        """Those that the driver listed last, by pid; None if that is unknown."""
        self.group_use: Mapping[Place, int] = {}
        """Bytes that the driver counts for control groups, where it limits them."""
        self._seen = Seen()
        self._found: Counter[Kind] = Counter()
        self._reported: Mapping[Finding, float] = {}
        self._problems: dict[str, str] = {}
        """What the kernel does not answer now, by what was asked."""
        self._is_active = config.has_watchdog and processes.has_nodes_pids
        if config.has_watchdog and not self._is_active:
            logger.warning("No watchdog: the monitor is not in the Node's pid namespace (hostPID)")

    def status(self) -> WatchdogStatus:
        """Return what is found now, and what was since the start."""
        return WatchdogStatus(self._is_active, self._seen.confirmed, self._found, self.evictions.counts)

    async def look(self, devices: Sequence[HostDevice]) -> bool:
        """Compare the processes of *devices*, just read, and return whether another reading is wanted soon."""
        if not self._is_active:
            return False
        now_seconds = self._monotonic_seconds()
        try:
            evidence = await self._evidence(devices)
        except HangError as error:
            self.processes = None
            self._report_problem("processes", str(error))
            return False
        self._report_problem("processes", "")
        before, self._seen = self._seen, see(self._seen, evidence, now_seconds)
        new = self._seen.confirmed - before.confirmed
        self._found.update(finding.kind for finding in new)
        self._reported, due = to_report(self._reported, new, now_seconds)
        sentences = {one.finding: sentence for one, sentence in evidence.items()}
        for finding in due:
            self._report(finding, sentences[finding])
        self.evictions.consider(self._seen, sentences, now_seconds)
        return not self._seen.is_settled

    async def _evidence(self, devices: Sequence[HostDevice]) -> dict[Evidence, str]:
        recorded = self._rounds.recorded
        granted = grants(self._rounds.shown(), recorded(UNPRELOADED), recorded(IN_NAMESPACE))
        owners = self._pods.owners()
        regions = self._regions()
        found = await self._uses(devices, granted, owners)
        by_process = find(found, granted, regions)
        places = limited_places(granted, owners, self._exempt, frozenset(device.uuid for device in devices))
        used = self.group_use = await self._used(places)
        by_group = find_in_groups(used, found, owners, granted, regions, by_process, self._margin_mib)
        if by_group:
            # The container may have freed memory in between. So the driver is read before and after the regions.
            regions, again = self._regions(), await self._used(places)
            used = {place: min(used[place], again[place]) for place in used.keys() & again.keys()}
            by_group = find_in_groups(used, found, owners, granted, regions, by_process, self._margin_mib)
        return by_group | by_process | find_unprepared(places, owners, granted, self._rounds.directories())

    async def _uses(
        self, devices: Sequence[HostDevice], granted: Grants, owners: Mapping[str, PodOwner]
    ) -> tuple[Use, ...]:
        """Return the uses of *devices* by containers, of those processes that run."""
        pids = sorted({process.pid for device in devices for process in device.processes})
        self.processes = await self._processes.find(pids) if pids else {}
        found = uses(devices, self.processes, owners, self._exempt)
        limited = sorted({use.process.program.pid for use in with_library(found, granted)})
        try:
            processes = await self._processes.look_for_library(limited) if limited else self.processes
        except HangError as error:
            self._report_problem("mappings", str(error))
            return found
        self._report_problem("mappings", "")
        return uses(devices, processes, owners, self._exempt)

    async def _used(self, places: Mapping[Place, ContainerGroup]) -> dict[Place, int]:
        """Return what the driver counts for the control group of each of *places* that it limits."""
        try:
            used = await self._groups.read(places)
        except NvmlError as error:
            self._report_problem("control groups", str(error))
            return {}
        self._report_problem("control groups", "")
        return used

    def _regions(self) -> Regions:
        usages = self._rounds.usages()
        return Regions(
            pids={key: usage.pids for key, usage in usages.items()},
            unread=frozenset(self._rounds.refusals()),
            used_bytes={
                key: {uuid: sums.total for uuid, sums in usage.devices.items()} for key, usage in usages.items()
            },
        )

    def _report(self, finding: Finding, sentence: str) -> None:
        place = finding.place
        logger.warning(
            "A container uses a device otherwise than granted", pod=f"{place.namespace}/{place.pod}", finding=sentence
        )
        self._events.warn(place.namespace, place.pod, place.pod_uid, EVENT_REASONS[finding.kind], sentence)

    def _report_problem(self, what: str, problem: str) -> None:
        if problem and not self._problems.get(what):
            logger.warning("The watchdog cannot read", what=what, error=problem)
        self._problems[what] = problem
