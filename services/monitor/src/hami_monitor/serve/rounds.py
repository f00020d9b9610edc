"""
Scan the container directories and give feedback, once an interval.

An error of one directory or one region is logged, and the round goes on. Any other error ends the process, and the
kubelet starts it again. The rounds keep nothing that the files and the API do not hold.
"""

import asyncio
import time
from collections.abc import Callable, Mapping

import structlog

from hami_monitor.adapters.directories import Directories
from hami_monitor.adapters.kube import Pods
from hami_monitor.adapters.regions import Regions
from hami_monitor.config import Config
from hami_monitor.decide.claims import UsedRequest, by_container
from hami_monitor.decide.containers import ContainerDirectory, ContainerKey, Refusal, abandoned, without_pod
from hami_monitor.decide.feedback import plan_writes
from hami_monitor.decide.grants import NO_GRANT, feedback_state, grants_of
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.usage import ContainerUsage
from hami_monitor.serve.claims import ClaimRegions

STALLED_SECONDS = 60.0
"""The process is not alive if no round has ended for this long and for twelve intervals."""

logger = structlog.get_logger()


class Rounds:
    """The rounds over the container directories of one Node."""

    def __init__(self, config: Config, pods: Pods, monotonic_seconds: Callable[[], float] = time.monotonic) -> None:
        """Prepare; *monotonic_seconds* is the clock that `live` reads."""
        self._config = config
        self._pods = pods
        self._monotonic_seconds = monotonic_seconds
        self._directories = Directories(config.hook_path)
        self.regions = Regions(self._directories.path)
        self.claims = ClaimRegions(config.hook_path)
        self.ended = 0
        """Rounds that ended since the start."""
        self.removed = 0
        """Directories deleted since the start."""
        self._last_end_seconds = monotonic_seconds()
        self._listed: tuple[ContainerDirectory, ...] | None = None
        self._scan_problem: str | None = None
        self._removal_problem = ""
        self._records_problem = ""
        self._recorded: dict[str, frozenset[ContainerKey]] = {}
        """By kind, as they could be read last."""
        self._odd_names: tuple[str, ...] = ()

    async def run(self) -> None:
        """Start a round each interval until cancelled."""
        while True:
            began = self._monotonic_seconds()
            await self.round()
            self._last_end_seconds = self._monotonic_seconds()
            await asyncio.sleep(max(0.0, self._config.round_seconds - (self._last_end_seconds - began)))

    async def round(self) -> None:
        """Delete the directories of Pods that are gone, and store the feedback for the others."""
        directories = self._scan()
        if directories is None:
            return
        pods = self._pods.cache()
        changed = self._directories.changed_seconds(without_pod(directories, pods))
        for key in abandoned(changed, pods, time.time(), self._config.resync_seconds):
            self.regions.forget(key)
            self._remove(key)
        shown = self._pods.shown()
        grants = {**grants_of(shown), **self.claims.prioritized(shown)}
        states = {**self.regions.states(), **self.claims.regions.states()}
        writes = plan_writes({key: feedback_state(state, grants.get(key, NO_GRANT)) for key, state in states.items()})
        self.regions.store(writes)
        self.claims.regions.store(writes)
        await self._delete_some()
        self.ended += 1

    def usages(self) -> Mapping[ContainerKey, ContainerUsage]:
        """Return what each container uses now, including those whose region was made since the last round."""
        self._scan()
        usages = self.regions.usages(grants_of(self._pods.shown()))
        return {**usages, **self.claims.usages(self.used_requests())}

    def shown(self) -> tuple[MonitoredPod, ...]:
        """Return the Pods that have devices, with the shares of their claims."""
        return self.claims.shown(self._pods.shown())

    def used_requests(self) -> Mapping[ContainerKey, UsedRequest]:
        """Return the request of a claim that each container uses, of those that use one."""
        return self.claims.used_by(self._pods.shown())

    def refusals(self) -> Mapping[ContainerKey, Refusal]:
        """Return the containers whose region cannot be read now, and why."""
        return {**self.regions.refusals, **by_container(self.claims.regions.refusals, self.used_requests())}

    def directories(self) -> frozenset[ContainerKey] | None:
        """Return the containers that had a directory at the last look; None if they could not be listed."""
        if self._listed is None:
            return None
        prepared = self.claims.prepared(self.used_requests())
        return frozenset({*(directory.key for directory in self._listed), *prepared})

    def recorded(self, kind: str) -> frozenset[ContainerKey]:
        """Return the containers of which the device plugin has recorded a *kind*, as they could be read last."""
        try:
            requests = dict.fromkeys(self.claims.directories.recorded(kind))
            found = by_container(requests, self.used_requests())
            self._recorded[kind] = self._directories.recorded(kind) | found.keys()
        except OSError as error:
            if not self._records_problem:
                logger.warning("It is unknown who limits which containers", error=str(error))
            self._records_problem = str(error)
        else:
            self._records_problem = ""
        return self._recorded.get(kind, frozenset())

    def live(self) -> str | None:
        """Return None while rounds end in time, else the problem."""
        silent_seconds = self._monotonic_seconds() - self._last_end_seconds
        if silent_seconds > max(STALLED_SECONDS, 12 * self._config.round_seconds):
            return f"the last round ended {silent_seconds:.0f} s ago"
        return None

    def ready(self) -> str | None:
        """Return None once a scrape shows every container of the Node, else what is missing."""
        if not self._pods.synced.is_set():
            return f"the Pods of node {self._config.node_name} have not been listed yet"
        return self._scan_problem or (None if self.ended else "the first round has not ended yet")

    def close(self) -> None:
        """Close every region."""
        self.regions.close()
        self.claims.regions.close()

    def _scan(self) -> tuple[ContainerDirectory, ...] | None:
        """Open the regions that exist now and return the directories; None if they cannot be listed."""
        try:
            directories, odd_names = self._directories.scan()
            self.claims.look()
            self._pods.charge(self.claims.charged(self._pods.shown()))
        except OSError as error:
            self._report_scan(f"{self._directories.path}: {error.strerror}")
            self._listed = None
            return None
        self._report_scan(None)
        for name in set(odd_names) - set(self._odd_names):
            logger.warning("Directory is not named <pod UID>_<container name>", name=name)
        self._odd_names = odd_names
        self._listed = directories
        self.regions.follow(directories)
        return directories

    def _remove(self, key: ContainerKey) -> None:
        try:
            self._directories.remove(key)
        except OSError as error:
            logger.warning("Container directory cannot be deleted", directory=str(key), error=str(error))
            return
        self.removed += 1
        logger.info("Deleted the directory of a container whose Pod is gone", directory=str(key))

    async def _delete_some(self) -> None:
        """Delete some of what was removed, now or by an earlier process."""
        try:
            await asyncio.to_thread(self._directories.delete_some)
        except OSError as error:
            problem = str(error)
            if problem != self._removal_problem:
                logger.warning("A removed directory cannot be deleted", error=problem)
            self._removal_problem = problem

    def _report_scan(self, problem: str | None) -> None:
        if problem is not None and problem != self._scan_problem:
            logger.warning("Container directories cannot be listed", error=problem)
        self._scan_problem = problem
