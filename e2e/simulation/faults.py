"""
What goes wrong, drawn one after another; several last at the same time.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from simulation.network import Trouble
from simulation.replica import Replica
from testbed.virtual.api import MemoryApi
from testbed.virtual.loop import VirtualProcess

PAUSE_SECONDS = (0.2, 6.0)
"""Between the begins of two faults, where they are dense; in other stories up to SPARSE times as long."""
SPARSE = 5.0
LAGGING = (0.0, 0.05, 0.3)
"""The part of all writes that lag behind."""
CHOSEN = 0.35
"""The part of the kinds that one run has."""
FOR_LEADER = 0.7
"""The part of the faults that surely hit a replica that leads."""
AT_ONCE = (1, 1, 2, 3)
"""How many hit the same replica together: all at once or within TOGETHER_SECONDS."""
TOGETHER_SECONDS = 5.0
SHORT_SECONDS, LONG_SECONDS = (0.5, 8.0), (10.0, 45.0)
"""How long a fault lasts; a long one outlasts a Lease and a request."""


class Faults:
    """Draws faults until it is cancelled."""

    def __init__(self, api: MemoryApi, replicas: Sequence[Replica], world: VirtualProcess, draw: random.Random) -> None:
        """Have done nothing."""
        self.counts: Counter[str] = Counter()
        """How often each was drawn."""
        self._api = api
        self._replicas = replicas
        self._draw = draw
        self._world = world
        self._tasks: set[asyncio.Task[None]] = set()
        self._kinds: dict[str, tuple[int, Callable[[Replica], Awaitable[None]]]] = {
            "SIGTERM of kube-scheduler": (6, Replica.terminate_kube_scheduler),
            "SIGKILL of kube-scheduler": (2, Replica.kill_kube_scheduler),
            "SIGKILL of the extender": (3, Replica.kill_extender),
            "SIGKILL of both": (2, self._kill_both),
            "SIGSTOP of kube-scheduler": (2, lambda replica: self._stop(replica, 1)),
            "SIGSTOP of the extender": (2, lambda replica: self._stop(replica, 0)),
            "SIGSTOP of both": (3, lambda replica: self._stop(replica, 0, 1)),
            "network cut": (3, self._cut),
            "slow network": (3, self._slow),
            "slow writes": (5, self._slow_writes),
            "late watches": (4, self._late_watches),
            "lost messages": (2, self._lose),
            "429, 500 and 503": (2, self._refuse),
            "API server away": (1, self._away),
            "watches forgotten": (1, self._forget),
            "clock step": (1, self._step),
        }

    async def run(self) -> None:
        """
        Let one fault after another begin, of some kinds only: what all kinds together hide, a few of them show.

        Source: Groce et al., Swarm Testing, ISSTA 2012
        """
        lagging = self._draw.choice(LAGGING)
        for replica in self._replicas:
            replica.network.trouble = Trouble(lagging=lagging)
        patience = self._draw.uniform(1.0, SPARSE)
        kinds = [kind for kind in self._kinds if self._draw.random() < CHOSEN] or [*self._kinds]
        weights = [self._kinds[kind][0] for kind in kinds]
        while True:
            await asyncio.sleep(patience * self._draw.uniform(*PAUSE_SECONDS))
            replica = self._victim()
            for name in self._draw.choices(kinds, weights, k=self._draw.choice(AT_ONCE)):
                self.counts[name] += 1
                task = self._world.start(self._begin(name, replica))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def heal(self) -> None:
        """End every fault, and wait until all containers run."""
        await self._api.set_away(is_away=False)
        self._api.forgets = False
        for replica in self._replicas:
            replica.network.heal()
            replica.clock_seconds = 0.0
            for process in replica.processes:
                process.go_on()
        await asyncio.gather(*self._tasks)
        for replica in self._replicas:
            replica.network.heal()

    def _victim(self) -> Replica:
        leaders = [replica for replica in self._replicas if replica.leads]
        is_for_leader = leaders and self._draw.random() < FOR_LEADER
        return self._draw.choice(leaders if is_for_leader else self._replicas)

    async def _begin(self, name: str, replica: Replica) -> None:
        await asyncio.sleep(self._draw.choice((0.0, self._draw.uniform(0.0, TOGETHER_SECONDS))))
        await self._kinds[name][1](replica)

    async def _last(self) -> None:
        """Wait as long as a fault lasts."""
        await asyncio.sleep(self._draw.uniform(*self._draw.choice((SHORT_SECONDS, LONG_SECONDS))))

    async def _kill_both(self, replica: Replica) -> None:
        await asyncio.gather(replica.kill_extender(), replica.kill_kube_scheduler())

    async def _stop(self, replica: Replica, *which: int) -> None:
        processes = [replica.processes[each] for each in which]
        for process in processes:
            process.stop()
        await self._last()
        for process in processes:
            process.go_on()

    async def _cut(self, replica: Replica) -> None:
        replica.network.cut()
        await self._last()
        replica.network.join()

    async def _slow(self, replica: Replica) -> None:
        await self._network(replica, slow_seconds=self._draw.choice((0.5, 5.0, 20.0)))

    async def _slow_writes(self, _: Replica) -> None:
        seconds = self._draw.choice((1.0, 5.0, 25.0))
        await asyncio.gather(*(self._network(each, slow_write_seconds=seconds) for each in self._replicas))

    async def _late_watches(self, replica: Replica) -> None:
        await self._network(replica, late_watch_seconds=self._draw.choice((0.2, 2.0, 15.0)))

    async def _lose(self, replica: Replica) -> None:
        await self._network(replica, lost=self._draw.uniform(0.05, 0.5))

    async def _refuse(self, replica: Replica) -> None:
        await self._network(replica, refused=self._draw.uniform(0.1, 0.95))

    async def _network(self, replica: Replica, **fault: float) -> None:
        network = replica.network
        network.trouble = replace(network.trouble, **fault)
        await self._last()
        network.trouble = replace(network.trouble, **dict.fromkeys(fault, 0.0))

    async def _away(self, _: Replica) -> None:
        await self._api.set_away(is_away=True)
        await asyncio.sleep(self._draw.uniform(*SHORT_SECONDS))
        await self._api.set_away(is_away=False)

    async def _forget(self, _: Replica) -> None:
        self._api.forgets = True
        await asyncio.sleep(0.05)
        self._api.forgets = False

    async def _step(self, replica: Replica) -> None:
        replica.clock_seconds += self._draw.choice((-3600.0, -30.0, 30.0, 3600.0))
