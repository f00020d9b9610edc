"""
A Binding that is on its way when another scheduler begins to decide never grants a device twice.

Two replicas, each a kube-scheduler and a scheduler, compete for one Lease. The API server holds a Binding back, and
carries it out after the new leader has decided.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from harness.cluster import Settings
from harness.clusters.embedded import EmbeddedCluster, running
from harness.manifests import SLEEP, a_pod
from testbed.driver.hardware import FakeNode
from testbed.folders import short_folder
from testbed.waiting import eventually

pytestmark = [pytest.mark.embedded_only, pytest.mark.timeout(120)]

NODE = FakeNode.of("n1", "NVIDIA A100-SXM4-40GB", 40960, 1)
MOST_OF_IT: dict[str, Any] = {"command": SLEEP, "gpu": 1, "gpumem": 30000}
LATE_SECONDS = 12.0
"""Long enough for another leader to decide, also on a busy machine."""
WATCH_LATE_SECONDS = 4.0
URGENT: dict[str, Any] = {"spec": {"priorityClassName": "system-node-critical"}, **MOST_OF_IT}
"""kube-scheduler asks about it first."""
FAULTS = "/minicluster/faults"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/hami"
ELECTION = {
    "leaderElect": True,
    "leaseDuration": "3s",
    "renewDeadline": "2s",
    "retryPeriod": "0.5s",
    "resourceName": "hami",
    "resourceNamespace": "kube-system",
}


class Replicas:
    """Two replicas, `a` and `b`, on one embedded cluster."""

    def __init__(self, cluster: EmbeddedCluster) -> None:
        self.cluster = cluster
        self._arrives_at = 0.0

    def send(self, replica: str, number: signal.Signals) -> None:
        """Send a signal to both processes of a replica."""
        for part in ("kube-scheduler", "scheduler"):
            os.kill(self.cluster.processes[f"{part}-{replica}"].pid, number)

    async def leads(self, replica: str) -> None:
        """Wait until *replica* holds the Lease."""

        async def holds() -> bool:
            holder = (await self.cluster.api.get(LEASE))["spec"].get("holderIdentity") or ""
            return bool(holder.startswith(f"{replica}_"))

        await eventually(holds, f"{replica} leads", 30)

    async def binding_is_held_back(self) -> None:
        """Create a Pod, and wait until its Binding is at the API server, which will carry it out late."""
        fault = {"method": "POST", "path": "/pods/first/binding", "delay_seconds": LATE_SECONDS, "times": 1}
        await self.cluster.api.create(FAULTS, fault)
        await self.cluster.create(a_pod("first", **MOST_OF_IT))

        async def arrived() -> bool:
            return not await self.cluster.api.get(FAULTS)

        await eventually(arrived, "the Binding has arrived")
        self._arrives_at = asyncio.get_running_loop().time() + LATE_SECONDS

    async def ask(self, replica: str, verb: str, question: dict[str, Any]) -> dict[str, Any]:
        """Return the answer of the scheduler of *replica* to kube-scheduler's question."""
        url = f"http://127.0.0.1:{self.cluster.port(f'scheduler-{replica}')}/{verb}"
        async with aiohttp.ClientSession() as session, session.post(url, json=question) as answer:
            found: dict[str, Any] = await answer.json()
            return found

    async def at_most_one_runs(self) -> None:
        """Wait until one of the Pods runs, and check that the card is never granted beyond its memory."""

        async def bound() -> list[str]:
            pods, _ = await self.cluster.api.list("/api/v1/namespaces/default/pods")
            names = [pod["metadata"]["name"] for pod in pods if pod["spec"].get("nodeName")]
            return [name for name in names if name in {"first", "second"}]

        await eventually(bound, "one is bound", 30)
        await asyncio.sleep(max(1.0, self._arrives_at + 1.0 - asyncio.get_running_loop().time()))
        assert 1 == len(await bound())


@asynccontextmanager
async def replicas() -> AsyncIterator[Replicas]:
    """Run two replicas of which `a` leads, instead of the one that the cluster has."""
    async with running(short_folder(), (NODE,), Settings()) as cluster:
        for part in ("kube-scheduler", "scheduler"):
            cluster.processes[part].terminate()
        found = Replicas(cluster)
        for replica in ("a", "b"):
            await cluster.start_replica(replica, ELECTION)
            await found.leads("a")
        yield found


async def _stopped(found: Replicas) -> None:
    """The leader is asked to end, as in a rolling update, and gives up the Lease at once."""
    found.send("a", signal.SIGTERM)


async def _killed(found: Replicas) -> None:
    """The leader ends without a word."""
    found.send("a", signal.SIGKILL)


async def _frozen(found: Replicas) -> None:
    """The leader stands still, and goes on when another one leads."""
    found.send("a", signal.SIGSTOP)


@pytest.mark.parametrize("how", [_stopped, _killed, _frozen])
@pytest.mark.parametrize("fails", [0, 2], ids=["", "fence-fails-twice"])
async def test_binding_of_the_last_leader_loses(how: Callable[[Replicas], Awaitable[None]], fails: int) -> None:
    """Two Pods that do not fit on the card together; the new leader places one, and the late Binding fails."""
    async with replicas() as found:
        await found.binding_is_held_back()
        fault = {"method": "PATCH", "path": "/pods/first/status", "status": 500, "times": fails}
        await (found.cluster.api.create(FAULTS, fault) if fails else asyncio.sleep(0))
        await how(found)
        await found.cluster.create(a_pod("second", **URGENT))
        await found.leads("b")
        await found.at_most_one_runs()
        if how is _frozen:
            found.send("a", signal.SIGCONT)
            await found.at_most_one_runs()


async def test_scheduler_that_does_not_know_that_it_was_deposed_binds_nothing() -> None:
    """Its watch of the Lease is late, so for all it knows it leads; before each Binding it reads the Lease."""
    async with replicas() as found:
        cluster = found.cluster
        await cluster.api.create("/minicluster/watches/lag", {"path": "/leases", "seconds": WATCH_LATE_SECONDS})
        first = await cluster.create(a_pod("first", spec={"schedulerName": "nobody"}, **MOST_OF_IT))
        await asyncio.sleep(WATCH_LATE_SECONDS + 1.0)
        answer = await found.ask("a", "filter", {"Pod": first, "Nodes": None, "NodeNames": ["n1"]})
        assert ["n1"] == answer["NodeNames"]
        os.kill(cluster.processes["kube-scheduler-a"].pid, signal.SIGSTOP)
        await found.leads("b")

        metadata = first["metadata"]
        names = {"PodName": "first", "PodNamespace": "default", "PodUID": metadata["uid"], "Node": "n1"}
        assert "does not hold the lease" in (await found.ask("a", "bind", names))["Error"]
        await cluster.api.request("DELETE", "/minicluster/watches/lag")
        await cluster.create(a_pod("second", **URGENT))
        await cluster.pod_in_phase("second", "Running", 40)
        assert "nodeName" not in (await cluster.pod("first"))["spec"]


async def test_binding_of_an_earlier_process_loses() -> None:
    """Without leader election a process that starts fences what the one before it sent."""
    async with running(short_folder(), (NODE,), Settings()) as cluster:
        found = Replicas(cluster)
        await found.binding_is_held_back()
        await cluster.kill("kube-scheduler")
        await cluster.kill("scheduler")
        await cluster.restart("scheduler")
        await cluster.create(a_pod("second", **URGENT))
        await cluster.restart("kube-scheduler")
        await found.at_most_one_runs()
