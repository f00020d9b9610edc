"""
Run the monitor's loops, and show them to scrapes.

Neighbours: `rounds`, `driver_watch` and `accounts` are the loops, `hami_monitor.adapters.kube` has the watches.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping

from hami_monitor.adapters.book_file import BookFile
from hami_monitor.adapters.kube import Events, Node, Pods
from hami_monitor.adapters.nvml import Driver
from hami_monitor.adapters.processes import Processes
from hami_monitor.config import Config
from hami_monitor.decide.driver_use import DeviceUses, driver_uses
from hami_monitor.decide.observation import Observation
from hami_monitor.metrics.status import MonitorStatus
from hami_monitor.serve.accounts import Accounts
from hami_monitor.serve.driver_watch import DriverWatch
from hami_monitor.serve.rounds import Rounds
from hami_monitor.serve.watchdog import Watchdog
from hamicommon.runtime.host.records import UNPRELOADED
from hamicommon.runtime.program import garbage


class Monitor:
    """The monitor of one Node."""

    def __init__(
        self,
        config: Config,
        pods: Pods,
        node: Node,
        driver: Driver,
        processes: Processes,
        events: Events,
        monotonic_seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the loops; *monotonic_seconds* is the clock of the liveness probe."""
        self._node_name = config.node_name
        self._has_accounts = bool(config.hook_path)
        self._pods = pods
        self._node = node
        self._events = events
        self.rounds = Rounds(config, pods, monotonic_seconds)
        self.watchdog = Watchdog(config, pods, self.rounds, processes, events, driver.used_by_cgroup, monotonic_seconds)
        self.driver = DriverWatch(driver, node, config.round_seconds, self.watchdog.look)
        self.accounts = Accounts(BookFile(config.hook_path), pods, node, self.observe, config)

    async def run(self) -> None:
        """Run until cancelled, or until an unknown error."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.run())
            tasks.create_task(garbage.keep_small(self._pods.synced.wait))
            tasks.create_task(self._node.run())
            tasks.create_task(self._events.run())
            tasks.create_task(self.watchdog.evictions.run())
            tasks.create_task(self.rounds.run())
            tasks.create_task(self.driver.run())
            if self._has_accounts:
                tasks.create_task(self.accounts.run())

    def observe(self) -> Observation:
        """Return what a scrape shows now."""
        usages = self.rounds.usages()
        return Observation(
            node_name=self._node_name,
            now_seconds=time.time(),
            pods=self.rounds.shown(),
            usages=usages,
            claims=self.rounds.used_requests(),
            refused=frozenset(self.rounds.refusals()),
            unpreloaded=self.rounds.recorded(UNPRELOADED),
            host_devices=self.driver.devices,
            device_order=self.driver.order,
            driver_uses=self._driver_uses(),
        )

    def _driver_uses(self) -> Mapping[str, DeviceUses]:
        """Return what the driver counts for containers; empty if it is unknown which processes are theirs."""
        processes = self.watchdog.processes
        return (
            {}
            if processes is None
            else driver_uses(self.driver.devices, processes, self._pods.owners(), self.watchdog.group_use)
        )

    def status(self) -> MonitorStatus:
        """Return the monitor's own state."""
        both = self.rounds.regions, self.rounds.claims.regions
        return MonitorStatus(
            regions=sum(map(len, both)),
            refused=Counter(refusal for regions in both for refusal in regions.refusals.values()),
            writes=both[0].writes + both[1].writes,
            directories_removed=self.rounds.removed,
            rounds=self.rounds.ended,
            is_driver_available=self.driver.is_available,
            pod_lists=self._pods.lists,
            watchdog=self.watchdog.status(),
            accounts=self.accounts.status,
        )

    def close(self) -> None:
        """Close every region, and the book."""
        self.rounds.close()
        self.accounts.close()
