"""
What a soak needs of a cluster, embedded or real: its parts as processes, and a keeper.

The keeper starts again what has ended, as a kubelet and a service manager do. Neighbours: `embedded` and `real` are the
clusters, `faults` ends their parts.
"""

import asyncio
import os
import random
import signal
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from harness.cluster import Cluster
from testbed.driver.hardware import FakeDriver, FakeNode

Counts = Mapping[str, int]
"""How many shares a Node offers of each device, by UUID."""

ON_NODES = ("plugin", "kubelet", "monitor")
REPLICATED = ("scheduler", "kube-scheduler")


@dataclass(frozen=True)
class Site:
    """What a cluster consists of, from which faults and Pods are drawn."""

    nodes: tuple[FakeNode, ...]
    hosts: tuple[str, ...]
    """Where the replicas of the scheduler run, each beside a kube-scheduler."""
    is_real: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all Nodes."""
        return tuple(node.name for node in self.nodes)

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of all parts. Those of a scheduler are there twice, so they are drawn twice as likely."""
        replicas = tuple(f"{part}-{host}" for part in REPLICATED for host in self.hosts)
        on_nodes = tuple(f"{part}-{node}" for part in ON_NODES for node in self.names)
        return ("webhook", "apiserver", *replicas, *replicas, *on_nodes)

    @property
    def cards(self) -> dict[str, str]:
        """The Node of each card, by UUID."""
        return {gpu.uuid: node.name for node in self.nodes for gpu in node.gpus}


class SoakCluster(Cluster):
    """A cluster whose ended parts are started again. `faults` and `load` work on it."""

    site: Site
    exits: Counter[str]
    """How often each part ended although nobody ended it, by its name and how it ended."""
    held: set[str]
    """Parts that the keeper does not start again now."""
    ended: set[int]
    """The pids of the processes that a fault ended."""
    first_counts: Mapping[str, Counts]
    """What each Node offered in the first calm, before any fault; empty until then."""

    @abstractmethod
    async def pids(self, part: str) -> list[int]:
        """Return the pids on this machine of the processes of *part*; none while it does not run."""

    @abstractmethod
    async def keep(self) -> None:
        """Start again each part that has ended, until cancelled."""

    @abstractmethod
    async def all_ready(self) -> None:
        """Wait until every part runs and serves. Raises: NotInTimeError with the name of the part."""

    @abstractmethod
    async def upgrade(self, part: str) -> None:
        """Replace all processes of a part as an upgrade does, and do not wait."""

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """During a block, start again each part that has ended."""
        keeper = asyncio.create_task(self.keep())
        try:
            yield
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def end(self, part: str, how: signal.Signals) -> None:
        """Send *how*, which ends it, to a part, and do not wait."""
        pids = await self.pids(part)
        self.ended.update(pids)
        send(pids, how)

    def driver(self, node: str) -> FakeDriver:
        """Return the driver of a Node."""
        return FakeDriver(self.driver_folder(node))


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to processes of which some may have ended."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def seeded(seed: int, what: str) -> random.Random:
    """Return the numbers that *what* draws from *seed*, whatever others draw."""
    return random.Random(f"{seed}/{what}")
