"""
One scheduler Pod on its machine: our extender, the kube-scheduler beside it, and what can happen to both.

The extender is the product's own `Service`; it and kube-scheduler are two processes that end and start on their own.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Coroutine
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar
from unittest.mock import patch

from prometheus_client import CollectorRegistry

from hami_scheduler import main
from hami_scheduler.config import Config
from hami_scheduler.errors import BindError
from hami_scheduler.serve.bind import bind_pod
from hami_scheduler.serve.filter import filter_pod
from hamicommon.model import Object
from hamicommon.runtime.program.device_config import DeviceConfigFile
from simulation.kube_scheduler import EXTENDER_SECONDS, LEASE, LEASE_NAMESPACE, SCHEDULER_NAME, KubeScheduler
from simulation.network import Connection, Network
from testbed.virtual.api import MemoryApi
from testbed.virtual.loop import VirtualProcess

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
RESTART_SECONDS = (0.5, 4.0)
"""How long a container takes to start again."""

T = TypeVar("T")


@dataclass(frozen=True)
class Surroundings:
    """What all replicas share."""

    api: MemoryApi
    draw: random.Random
    world: VirtualProcess
    """What is no part of a replica: kubelets, for example, who start its containers again."""
    devices: DeviceConfigFile
    nodes: Callable[[], Collection[str]]


class Extender:
    """One process of our scheduler, and the calls that it is to answer."""

    def __init__(self, name: str, service: main.Service) -> None:
        """Serve with *service*."""
        self.process = VirtualProcess(name)
        self.service = service
        self._answers: dict[asyncio.Future[Any], None] = {}
        for actor in service.actors():
            self.process.start(actor)

    def kill(self) -> None:
        """End as by SIGKILL: nothing is done any more, and callers see their connections break."""
        self.process.kill()
        for answer in [*self._answers]:
            if not answer.done():
                answer.set_exception(ConnectionResetError("the extender ended"))

    async def filter(self, pod: Object, nodes: Collection[str]) -> tuple[list[str], str]:
        """Ask for a Node among *nodes*."""
        answer = await self._ask(filter_pod(self.service.context, pod, [*nodes], None))
        return [*(answer.node_names or ())], answer.error

    async def bind(self, pod: Object, node: str) -> str:
        """Bind *pod*."""
        metadata = pod["metadata"]
        try:
            await self._ask(
                bind_pod(self.service.context, metadata["uid"], metadata["namespace"], metadata["name"], node)
            )
        except BindError as error:
            return str(error)
        return ""

    async def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        if self.process.is_killed:
            work.close()
            raise ConnectionRefusedError("no extender listens")
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._answers[answer] = None
        self.process.start(_answered(work, answer))
        try:
            async with asyncio.timeout(EXTENDER_SECONDS):
                return await answer
        finally:
            del self._answers[answer]


async def _answered(work: Coroutine[Any, Any, T], answer: "asyncio.Future[T]") -> None:
    try:
        result = await work
    except BindError as error:
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


class Replica:
    """A scheduler Pod. Its containers start again when they end, as a kubelet does it."""

    def __init__(self, number: int, surroundings: Surroundings) -> None:
        """Have nothing running."""
        self.name = f"scheduler-{number}"
        self.network = Network(surroundings.draw)
        self.clock_seconds = 0.0
        """By how much the wall clock of its machine is ahead."""
        self._shared = surroundings
        self._api = Connection(surroundings.api, self.network)
        self._starts = 0
        self.extender: Extender
        self.kube_scheduler: VirtualProcess
        self._elector: KubeScheduler

    def start(self) -> None:
        """Start both containers."""
        self._start_extender()
        self._start_kube_scheduler()

    def now(self) -> datetime:
        """Return the time by the wall clock of its machine."""
        return BEGIN + timedelta(seconds=asyncio.get_running_loop().time() + self.clock_seconds)

    async def filter(self, pod: Object, nodes: Collection[str]) -> tuple[list[str], str]:
        """Ask the extender that runs now for a Node among *nodes*."""
        return await self.extender.filter(pod, nodes)

    async def bind(self, pod: Object, node: str) -> str:
        """Let the extender that runs now bind *pod*."""
        return await self.extender.bind(pod, node)

    @property
    def leads(self) -> bool:
        """Whether its kube-scheduler believes that it holds the Lease."""
        return self._elector.leads

    @property
    def processes(self) -> tuple[VirtualProcess, VirtualProcess]:
        """What runs in it."""
        return self.extender.process, self.kube_scheduler

    async def kill_extender(self) -> None:
        """SIGKILL, and the next start."""
        if self.extender.process.is_killed:
            return
        self.extender.kill()
        await self._restart_pause()
        self._start_extender()

    async def kill_kube_scheduler(self) -> None:
        """SIGKILL, and the next start."""
        if self.kube_scheduler.is_killed:
            return
        self.kube_scheduler.kill()
        await self._restart_pause()
        self._start_kube_scheduler()

    async def terminate_kube_scheduler(self) -> None:
        """SIGTERM: it gives the Lease up, and ends whatever it was doing."""
        process = self.kube_scheduler
        releasing = process.start(self._elector.release())
        await asyncio.wait([releasing], timeout=EXTENDER_SECONDS)
        if process is self.kube_scheduler:
            await self.kill_kube_scheduler()

    async def _restart_pause(self) -> None:
        await asyncio.sleep(self._shared.draw.uniform(*RESTART_SECONDS))

    def _start_extender(self) -> None:
        self._starts += 1
        config = Config(
            scheduler_name=SCHEDULER_NAME,
            must_lead=True,
            lease_name=LEASE,
            lease_namespace=LEASE_NAMESPACE,
            hostname=self.name,
        )
        client: Any = self._api
        with patch.object(main, "_now", self.now):
            service = main.Service(config, client, self._shared.devices, CollectorRegistry())
        self.extender = Extender(f"{self.name}/extender-{self._starts}", service)

    def _start_kube_scheduler(self) -> None:
        self._starts += 1
        identity = f"{self.name}_{self._starts}"
        process = VirtualProcess(f"{self.name}/kube-scheduler-{self._starts}")
        self._elector = KubeScheduler(self._api, identity, self, self._shared.nodes, self.now)
        self.kube_scheduler = process
        process.start(self._elector.run()).add_done_callback(lambda _: self._after_exit(process))

    def _after_exit(self, process: VirtualProcess) -> None:
        """Start kube-scheduler again after it has lost the Lease."""
        if process is self.kube_scheduler:
            self._shared.world.start(self.kill_kube_scheduler())
