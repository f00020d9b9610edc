"""
A second replica takes over from a scheduler that is gone or stopped, and nothing is granted twice.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.invariants import check
from harness.load import kept_running
from harness.manifests import SLEEP, a_pod
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]

LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{HAMI}/leases/hami-scheduler"
TAKEOVER_SECONDS = 30.0
"""The chart's Lease lets a standby take over after 14.4 s at most; the rest is for a busy machine."""
PARTS = ("kube-scheduler", "scheduler")
FULL_A: dict[str, Any] = {"annotations": {"nvidia.com/use-gputype": "A100"}, "gpu": 1, "gpumem": 30000}
"""A Pod that fills one of the two devices of node-a."""


async def leader(cluster: RealCluster) -> str:
    """Return the name of the Pod whose kube-scheduler holds the Lease."""
    holder: str = (await cluster.api.get(LEASE))["spec"]["holderIdentity"]
    return holder.rpartition("_")[0]


async def taken_over(cluster: RealCluster, old: str) -> str:
    """Wait until a Pod other than *old* leads, and return its name."""

    async def probe() -> str | None:
        found = await leader(cluster)
        return found if found != old else None

    return await eventually(probe, f"a scheduler other than {old} leads", TAKEOVER_SECONDS)


@asynccontextmanager
async def two_schedulers(cluster: RealCluster) -> AsyncIterator[str]:
    """During a block, run two replicas. Yields the name of the leading one."""
    await cluster.deploy(values={"scheduler.replicas": 2})
    try:
        yield await eventually(lambda: leader(cluster), "a scheduler leads")
    finally:
        await cluster.heal()


@asynccontextmanager
async def frozen(cluster: RealCluster, pod: str) -> AsyncIterator[None]:
    """During a block, stop kube-scheduler and scheduler of *pod* (SIGSTOP)."""
    for part in PARTS:
        await cluster.send_signal(part, pod, signal.SIGSTOP)
    try:
        yield
    finally:
        for part in PARTS:
            await cluster.send_signal(part, pod, signal.SIGCONT)


async def test_standby_of_a_scheduler_that_was_killed_takes_over(cluster: RealCluster) -> None:
    """Pods created meanwhile run, and the new leader counts the grants of the old one."""
    async with two_schedulers(cluster) as old:
        await kept_running(cluster, "before")
        await cluster.api.delete(f"/api/v1/namespaces/{HAMI}/pods/{old}", 0)
        await cluster.create(a_pod("meanwhile", gpu=1, gpumem=3000))

        await taken_over(cluster, old)
        await cluster.pod_in_phase("meanwhile", "Running")

        await check(cluster)


async def test_scheduler_that_was_stopped_grants_nothing_when_it_continues(cluster: RealCluster) -> None:
    """It continues without the Lease, with Pods that it did not place, and with devices that are full meanwhile."""
    async with two_schedulers(cluster) as old:
        async with frozen(cluster, old):
            for name in ("first", "second", "third"):
                await cluster.create(a_pod(name, command=SLEEP, **FULL_A))
            await taken_over(cluster, old)
            running = [name for name in ("first", "second") if await cluster.pod_in_phase(name, "Running", 30)]
        await asyncio.sleep(5)

        assert ["first", "second"] == running
        assert "nodeName" not in (await cluster.pod("third"))["spec"]
        assert old != await leader(cluster)
        await check(cluster)
