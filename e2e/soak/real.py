"""
The real cluster of a soak: three Nodes, two replicas of webhook and scheduler, each part in a Pod.

The kubelets start containers again, later each time (CrashLoopBackOff). The keeper starts what no kubelet does.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from controlplane.cluster import ClusterError, ControlPlane
from controlplane.machines.machine import Machine, MachineError
from hamicommon.model import Object
from harness.clusters.mixed import part_of
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI, Release
from minicluster.client import ApiError
from soak.cluster import REPLICATED, Site, SoakCluster
from soak.embedded import IDENTITY
from testbed.driver.hardware import FakeNode
from testbed.waiting import eventually

NODES = IDENTITY[:3]
SITE = Site(NODES, ("0", "1"), is_real=True)
VALUES = {"scheduler.replicas": len(SITE.hosts)}
START_SECONDS = 420.0
"""How long a part may take to be ready: a kubelet waits up to 300 s before it starts a container again."""
KEEPER_SECONDS = 1.0
WORKLOADS = {"plugin": "daemonset/hami-device-plugin", "monitor": "daemonset/hami-monitor"}
"""What is restarted when a part is upgraded; the schedulers are one Deployment."""


class RealSoakCluster(RealCluster, SoakCluster):
    """The cluster, with the release on it. Replicas are numbered in the order of their Pods' names."""

    site = SITE

    def __init__(self, control_plane: ControlPlane, nodes: tuple[FakeNode, ...], release: Release) -> None:
        super().__init__(control_plane, nodes, release)
        self.exits = Counter()
        self.held, self.ended = set(), set()
        self.first_counts = {}
        self._booting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def pids(self, part: str) -> list[int]:
        """Find those of containers by their Pods; none while the API server is away."""
        try:
            if service := self._service(part):
                machine, name = service
                pid = machine.services().get(name)
                return [pid] if pid is not None else []
            return [self._pid(pod, status) for pod, status in await self._of(part)]
        except (ApiError, MachineError, ProcessLookupError):
            return []

    async def pods_of(self, part: str) -> list[str]:
        """Return the names of the Pods of a service; none while the API server is away."""
        try:
            return [pod["metadata"]["name"] for pod, _ in await self._of(part)]
        except ApiError:
            return []

    async def upgrade(self, part: str) -> None:
        """Restart its workload Pod by Pod."""
        workload = WORKLOADS.get(part, "deployment/hami-scheduler")
        with suppress(ClusterError):  # the API server is away
            await asyncio.to_thread(self.control_plane.kubectl, "rollout", "restart", workload, f"--namespace={HAMI}")

    async def reboot(self, node: str) -> None:
        """Cut the power of a Node, once it has booted if it is just booting, and boot it again."""
        async with self._booting[node]:
            await asyncio.to_thread(self.control_plane.node(node).restart)

    async def keep(self) -> None:
        """Start API server and kubelets again; kubelets start the containers."""
        while True:
            if not any(self._service(part) for part in self.held):
                with suppress(MachineError):  # a Node is off: it is booting
                    await asyncio.to_thread(self.control_plane.heal)
            await asyncio.sleep(KEEPER_SECONDS)

    async def all_ready(self) -> None:
        """Wait until every container of the release is ready, a scheduler leads, and every Node offers devices."""
        until = time.monotonic() + START_SECONDS
        for part in dict.fromkeys(self.site.parts):
            if not self._service(part):
                await self._ready_again(part, until)
        await eventually(lambda: self.metrics("scheduler"), "a scheduler leads", START_SECONDS)
        await asyncio.gather(*(self.node_ready(name, START_SECONDS) for name in self.site.names))

    async def _ready_again(self, part: str, until: float) -> None:
        async def probe() -> bool:
            found = await self._of(part)
            return bool(found) and all(status["ready"] for _, status in found)

        await eventually(probe, f"{part} is ready", max(1.0, until - time.monotonic()))

    async def _of(self, part: str) -> list[tuple[Object, Object]]:
        """Return the Pods of a part, each with the status of its container; of a replica only its own."""
        kind = part_of(part)
        if kind not in REPLICATED:
            return await self._containers(part)
        found = sorted(await self._containers(kind), key=lambda each: each[0]["metadata"]["name"])
        return found[int(part.removeprefix(f"{kind}-")) :][:1]

    def _service(self, part: str) -> tuple[Machine, str] | None:
        """Return the machine of a part that runs in no container, and its name there; None for any other part."""
        if part == "apiserver":
            return self.control_plane.control, "kube-apiserver"
        if part.startswith("kubelet-"):
            return self.control_plane.node(part.removeprefix("kubelet-")).machine, "kubelet"
        return None


@asynccontextmanager
async def running(step: Callable[[str], None]) -> AsyncIterator[RealSoakCluster]:
    """Run the cluster during a block."""
    step("Kubernetes")
    async with RealSoakCluster.running(nodes=NODES) as cluster:
        step("two replicas of the scheduler")
        await cluster.deploy(values=VALUES)
        yield cluster
