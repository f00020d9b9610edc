"""
Scan, give feedback, and ask the driver, round by round.

An error of one directory, one region or the driver is logged and survived; any other ends the process, and the kubelet
starts it again. Nothing is kept that the files and the API do not say again.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

import structlog

from hami_monitor.adapters.directories import Directories
from hami_monitor.adapters.kube import Pods
from hami_monitor.adapters.nvml import DriverError, Nvml
from hami_monitor.adapters.regions import Regions
from hami_monitor.config import Config
from hami_monitor.decide.containers import ContainerDirectory, abandoned
from hami_monitor.decide.feedback import plan_writes
from hami_monitor.decide.observation import HostDevice, Observation
from hami_monitor.decide.usage import container_usage, feedback_state
from hami_monitor.metrics.status import MonitorStatus
from hamicommon.runtime.reflector import Backoff

STALLED_SECONDS = 60.0
"""Without a finished round for this long, and for twelve intervals, the process is not alive."""

logger = structlog.get_logger()


class Monitor:
    """One life of the monitor: what it holds between rounds, scrapes and readings of the driver."""

    def __init__(
        self, config: Config, pods: Pods, nvml: Nvml, monotonic_seconds: Callable[[], float] = time.monotonic
    ) -> None:
        """Hold nothing yet; *monotonic_seconds* tells how time passes."""
        self._monotonic_seconds = monotonic_seconds
        self._config = config
        self._pods = pods
        self._nvml = nvml
        self._directories = Directories(config.hook_path)
        self._regions = Regions(self._directories.path)
        self._host_devices: tuple[HostDevice, ...] = ()
        self._device_order: dict[str, int] = {}
        self._driver_problem: str | None = "not asked yet"
        self._scan_problem: str | None = None
        self._odd_names: tuple[str, ...] = ()
        self._removed = 0
        self._rounds = 0
        self._last_round = self._monotonic_seconds()

    async def run_rounds(self) -> None:
        """Scan and give feedback, once an interval, until cancelled."""
        while True:
            began = self._monotonic_seconds()
            await self.round()
            self._last_round = self._monotonic_seconds()
            await asyncio.sleep(max(0.0, self._config.round_seconds - (self._monotonic_seconds() - began)))

    async def round(self) -> None:
        """Look at the directories, delete what is abandoned, and store what the containers' activity asks for."""
        directories = self._look()
        if directories is None:
            return
        for directory in abandoned(directories, self._pods.cache(), time.time(), self._config.resync_seconds):
            self._regions.forget(directory.key)
            await self._remove(directory)
        self._regions.store(plan_writes({key: feedback_state(region) for key, region in self._regions.read().items()}))
        self._rounds += 1

    async def follow_driver(self) -> None:
        """Ask the driver once an interval, more and more rarely while it does not answer, until cancelled."""
        backoff = Backoff(first_seconds=self._config.round_seconds, last_seconds=60.0)
        while True:
            try:
                self._host_devices = await self._nvml.devices()
            except DriverError as error:
                self._host_devices = ()
                self._report_driver(str(error))
                await asyncio.sleep(backoff.next_seconds(at_least=self._config.round_seconds))
                continue
            self._device_order = {device.uuid: device.index for device in self._host_devices}
            backoff.reset()
            self._report_driver(None)
            await asyncio.sleep(self._config.round_seconds)

    def observe(self) -> Observation:
        """Return what a scrape shows now, regions that were made since the last round among it."""
        self._look()
        usages = {key: container_usage(region) for key, region in self._regions.read().items()}
        return Observation(
            node_name=self._config.node_name,
            now_seconds=time.time(),
            pods=self._pods.shown(),
            usages=usages,
            refused=frozenset(self._regions.refusals),
            host_devices=self._host_devices,
            device_order=self._device_order,
        )

    def status(self) -> MonitorStatus:
        """Return how the monitor itself is doing."""
        return MonitorStatus(
            regions=len(self._regions),
            refused=Counter(self._regions.refusals.values()),
            writes=self._regions.writes,
            directories_removed=self._removed,
            rounds=self._rounds,
            is_driver_available=self._driver_problem is None,
            pod_lists=self._pods.lists,
        )

    def live(self) -> str | None:
        """Return None while rounds are finished in time, else what is wrong."""
        silent_seconds = self._monotonic_seconds() - self._last_round
        if silent_seconds > max(STALLED_SECONDS, 12 * self._config.round_seconds):
            return f"the last round ended {silent_seconds:.0f} s ago"
        return None

    def ready(self) -> str | None:
        """Return None once scrapes show every container of the Node, else what is missing."""
        if not self._pods.synced.is_set():
            return f"the Pods of node {self._config.node_name} have not been listed yet"
        return self._scan_problem or (None if self._rounds else "the first round has not ended yet")

    def close(self) -> None:
        """Let go of every region."""
        self._regions.close()

    def _look(self) -> tuple[ContainerDirectory, ...] | None:
        """Open the regions there are now and return the directories, or None where they cannot be listed."""
        try:
            directories, odd_names = self._directories.scan()
        except OSError as error:
            self._report_scan(f"{self._directories.path}: {error.strerror}")
            return None
        self._report_scan(None)
        for name in set(odd_names) - set(self._odd_names):
            logger.warning("Directory is not named <pod UID>_<container name>", name=name)
        self._odd_names = odd_names
        self._regions.follow(directories)
        return directories

    async def _remove(self, directory: ContainerDirectory) -> None:
        try:
            await asyncio.to_thread(self._directories.remove, directory)
        except OSError as error:
            logger.warning("Container directory cannot be deleted", directory=str(directory.key), error=str(error))
            return
        self._removed += 1
        logger.info("Deleted the directory of a container whose Pod is gone", directory=str(directory.key))

    def _report_driver(self, problem: str | None) -> None:
        if problem != self._driver_problem:
            if problem is None:
                logger.info("The driver answers", devices=len(self._host_devices))
            else:
                logger.warning("No host metrics until the driver answers", error=problem)
        self._driver_problem = problem

    def _report_scan(self, problem: str | None) -> None:
        if problem is not None and problem != self._scan_problem:
            logger.warning("Container directories cannot be listed", error=problem)
        self._scan_problem = problem
