"""
The cluster of a soak: eight Nodes of mixed kinds, two replicas of the scheduler, and a keeper.

The keeper starts again what has ended, as a kubelet and a service manager do. Neighbour: `faults` ends it.
"""

import asyncio
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from harness.clusters.mixed import DRIVER, LOCKED, MIG, START_SECONDS, T4, MixedCluster, part_of
from testbed.hardware import FakeDriver, FakeNode
from testbed.waiting import NotInTimeError

A100, A10 = "NVIDIA A100-SXM4-40GB", "NVIDIA A10"
NODES = (
    FakeNode.of("identity-a", A100, 40960, 2),
    FakeNode.of("identity-b", A10, 24576, 4),
    FakeNode.of("identity-c", T4, 16384, 2),
    FakeNode.of("identity-d", A100, 40960, 2),
    *LOCKED,
    MIG,
    DRIVER,
)
SHARING = tuple(node.name for node in NODES if node not in {MIG, DRIVER})
"""The Nodes whose plugin may allocate in another way tomorrow."""
HOSTS = ("a", "b")
"""Where the replicas of the scheduler run, each beside a kube-scheduler."""
KEEPER_SECONDS = 0.2
BACKOFF_SECONDS = (0.5, 8.0)
"""Before a part that ended is started again: the first and the longest, doubled while it lives a short time."""
LIVES_SECONDS = 20.0


class SoakCluster(MixedCluster):
    """The cluster, whose ended parts are started again. `faults` and `load` work on it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, NODES, HOSTS)
        self.exits: Counter[str] = Counter()
        """How often each part ended although nobody ended it, by its name and how it ended."""
        self.held: set[str] = set()
        """Parts that the keeper does not start again now."""
        self._ended: set[int] = set()
        """The pids of the processes that a fault ended."""

    def driver(self, node: str) -> FakeDriver:
        """Return the driver of a Node."""
        return FakeDriver(self.driver_folder(node))

    def end(self, part: str, how: signal.Signals) -> None:
        """Send *how*, which ends it, to a part, and do not wait."""
        process = self.processes[part]
        if process.popen is not None and process.is_running:
            self._ended.add(process.pid)
            process.popen.send_signal(how)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """During a block, start again each part that has ended."""
        keeper = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _keep(self) -> None:
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
        if popen is not None and popen.pid not in self._ended:
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
        until = time.monotonic() + START_SECONDS
        while True:
            try:
                await self.ready(name, until - time.monotonic())
            except NotInTimeError:
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(KEEPER_SECONDS)
            else:
                return


def seeded(seed: int, what: str) -> random.Random:
    """Return the numbers that *what* draws from *seed*, whatever others draw."""
    return random.Random(f"{seed}/{what}")
