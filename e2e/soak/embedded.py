"""
The embedded cluster of a soak: eight Nodes of mixed kinds, two replicas of the scheduler, and a keeper.
"""

import asyncio
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from harness.clusters.mixed import DRIVER, LOCKED, MIG, T4, MixedCluster, part_of
from minicluster.kubelet.runtime.containers import kill_all
from soak.cluster import Site, SoakCluster
from testbed.driver.hardware import FakeNode
from testbed.folders import short_folder
from testbed.waiting import NotInTimeError

A100, A10 = "NVIDIA A100-SXM4-40GB", "NVIDIA A10"
IDENTITY = (
    FakeNode.of("identity-a", A100, 40960, 2),
    FakeNode.of("identity-b", A10, 24576, 4),
    FakeNode.of("identity-c", T4, 16384, 2),
    FakeNode.of("identity-d", A100, 40960, 2),
)
SITE = Site((*IDENTITY, *LOCKED, MIG, DRIVER), ("a", "b"))
SHARING = tuple(node.name for node in (*IDENTITY, *LOCKED))
"""The Nodes whose plugin may allocate in another way tomorrow."""
KEEPER_SECONDS = 0.2
BACKOFF_SECONDS = (0.5, 8.0)
"""Before a part that ended is started again: the first and the longest, doubled while it lives a short time."""
LIVES_SECONDS = 20.0


class EmbeddedSoakCluster(MixedCluster, SoakCluster):
    """The cluster, below one folder."""

    def __init__(self, folder: Path, site: Site = SITE) -> None:
        super().__init__(folder, site.nodes, site.hosts)
        self.site = site
        self.exits = Counter()
        self.held, self.ended = set(), set()
        self.first_counts = {}

    async def pids(self, part: str) -> list[int]:
        """Return that of its only process."""
        process = self.processes[part]
        return [process.pid] if process.popen is not None and process.is_running else []

    async def upgrade(self, part: str) -> None:
        """Ask all processes of a part to end at once, as an upgrade does at worst. The keeper starts them again."""
        for name in self.processes:
            if part_of(name) == part:
                await self.end(name, signal.SIGTERM)

    async def keep(self) -> None:
        """Start again each process that has ended, after a back-off."""
        first, longest = BACKOFF_SECONDS
        backoff = dict.fromkeys(self.processes, first)
        due: dict[str, float] = {}
        started = dict.fromkeys(self.processes, 0.0)
        while True:
            now = time.monotonic()
            for name, process in self.processes.items():
                if process.is_running or name in self.held:
                    due.pop(name, None)
                elif name not in due:
                    self._count_exit(name)
                    backoff[name] = first if now - started[name] > LIVES_SECONDS else min(2 * backoff[name], longest)
                    due[name] = now + backoff[name]
                elif now >= due[name]:
                    started[name] = now
                    self._supervisor.restart(name)
            await asyncio.sleep(KEEPER_SECONDS)

    def _count_exit(self, name: str) -> None:
        popen = self.processes[name].popen
        if popen is not None and popen.pid not in self.ended:
            self.exits[f"{part_of(name)} ({popen.returncode})"] += 1

    async def all_ready(self) -> None:
        """
        Wait until every part runs and serves.

        Raises: NotInTimeError with the name of the part.
        """
        services = [name for name in self.processes if name.startswith(("webhook", "scheduler", "monitor", "plugin"))]
        await asyncio.gather(*map(self._ready_again, services))
        await asyncio.gather(*(self.node_ready(node.name) for node in self.nodes))

    async def _ready_again(self, name: str) -> None:
        """Wait until a service is ready that may not run yet."""
        until = time.monotonic() + self.start_seconds
        while True:
            try:
                await self.ready(name, until - time.monotonic())
            except NotInTimeError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(KEEPER_SECONDS)
            else:
                return


@asynccontextmanager
async def running(step: Callable[[str], None]) -> AsyncIterator[EmbeddedSoakCluster]:
    """Run the cluster during a block, in a folder that is removed afterwards."""
    folder = short_folder()
    cluster = EmbeddedSoakCluster(folder)
    try:
        await cluster.start(step)
        yield cluster
    finally:
        await cluster.stop()
        for node in cluster.nodes:
            kill_all(folder / node.name)
        shutil.rmtree(folder, ignore_errors=True)
