"""
A Pod of higher priority gets its share with as few evictions as possible, and none that does not help.

kube-scheduler plans evictions by what it knows, such as processors. The scheduler completes the plan through
`preemptVerb`, or removes the Node from it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from hamicommon.model import Object
from hamicommon.pod.reading import read_pod
from harness.cluster import Cluster
from harness.clusters.real import RealCluster
from harness.invariants import check, samples
from harness.manifests import SLEEP, a_container, a_pod
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(300)]

ON_A = {"nvidia.com/use-gputype": "A100"}
PRIORITIES = {"low": 10, "middle": 500, "high": 1000}
EVICTED_SECONDS = 60.0


@asynccontextmanager
async def priorities(cluster: Cluster) -> AsyncIterator[None]:
    """During a block, the classes of PRIORITIES exist. Afterwards the Pods of the test are deleted."""
    path = "/apis/scheduling.k8s.io/v1/priorityclasses"
    for name, value in PRIORITIES.items():
        kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
        await cluster.api.create(path, {**kind, "metadata": {"name": name}, "value": value})
    try:
        yield
        await check(cluster)
    finally:
        await cluster.delete_all_pods()
        for name in PRIORITIES:
            await cluster.api.delete(f"{path}/{name}")


def a_ranked_pod(name: str, priority: str, memory_mib: int, milli_cpu: int = 0) -> Object:
    """Return a Pod for node-a that requests a share, unless *memory_mib* is 0, and processors."""
    limits: dict[str, Any] = {"gpu": 1, "gpumem": memory_mib} if memory_mib else {}
    container = a_container(command=SLEEP, **limits)
    if milli_cpu:
        container["resources"]["requests"] = {"cpu": f"{milli_cpu}m"}
    spec = {"priorityClassName": priority, "nodeSelector": {"kubernetes.io/hostname": "node-a"}}
    return a_pod(name, containers=[container], annotations=ON_A if memory_mib else {}, spec=spec)


async def most_processors(cluster: Cluster) -> int:
    """Return a little over half of node-a's processors, in thousandths, so that only one such Pod fits."""
    node = await cluster.api.get("/api/v1/nodes/node-a")
    return int(node["status"]["allocatable"]["cpu"]) * 500 + 100


async def running(cluster: Cluster, *pods: Object) -> None:
    """Create *pods* one after the other, each once the one before it runs."""
    for pod in pods:
        await cluster.create(pod)
        await cluster.pod_in_phase(pod["metadata"]["name"], "Running")


async def evicted(cluster: Cluster) -> set[str]:
    """Return the names of the Pods that kube-scheduler evicted."""
    found, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/events")
    return {event["involvedObject"]["name"] for event in found if event["reason"] == "Preempted"}


def device_of(pod: Object) -> str:
    """Return the UUID of a Pod's only device."""
    [[share]] = read_pod(pod).granted("hami.io/vgpu-devices-allocated").shares
    return share.uuid


async def test_preempting_pod_gets_a_share_and_the_preempted_one_gives_its_back(cluster: RealCluster) -> None:
    """kube-scheduler preempts on a Node without free processors, and the share goes to the preempting Pod."""
    most = await most_processors(cluster)
    async with priorities(cluster):
        await running(cluster, a_ranked_pod("low", "low", 1000, most))

        await cluster.create(a_ranked_pod("high", "high", 1000, most))

        high = await cluster.pod_in_phase("high", "Running", EVICTED_SECONDS)
        await cluster.pod_gone("low", EVICTED_SECONDS)
        assert "node-a" == high["spec"]["nodeName"]


async def test_one_pod_is_evicted_for_its_share_if_one_suffices(cluster: RealCluster) -> None:
    """
    Different Pods hold processors and devices. The one with the processors is evicted. Of those with a share, only the
    one of lowest priority whose share suffices is evicted.
    """
    most = await most_processors(cluster)
    async with priorities(cluster):
        await running(
            cluster,
            a_ranked_pod("processors", "low", 0, most),
            a_ranked_pod("middle", "middle", 30000),
            a_ranked_pod("low", "low", 30000),
            a_ranked_pod("small", "low", 2000),
        )
        freed = device_of(await cluster.pod("low"))

        await cluster.create(a_ranked_pod("high", "high", 20000, most))

        high = await cluster.pod_in_phase("high", "Running", EVICTED_SECONDS)
        assert freed == device_of(high)
        assert {"processors", "low"} == await evicted(cluster)
        for name in ("middle", "small"):
            [status] = (await cluster.pod_in_phase(name, "Running"))["status"]["containerStatuses"]
            assert 0 == status["restartCount"]


async def test_no_pod_is_evicted_for_a_pod_that_would_get_no_share(cluster: RealCluster) -> None:
    """Pods of equal priority hold the devices, so free processors do not help until one of these Pods ends."""
    most = await most_processors(cluster)

    async def asked() -> float:
        found = samples(await cluster.metrics("scheduler"))
        return sum(count for _, count in found.get("hami_scheduler_preempt_seconds_count", []))

    async with priorities(cluster):
        await running(
            cluster,
            a_ranked_pod("processors", "low", 0, most),
            a_ranked_pod("equal", "high", 30000),
            a_ranked_pod("other", "high", 30000),
        )
        before = await asked()
        await cluster.create(a_ranked_pod("high", "high", 20000, most))

        async def judged() -> bool:
            return await asked() > before and bool(await cluster.events("high"))

        await eventually(judged, "kube-scheduler calls the verb preempt")
        assert set() == await evicted(cluster)
        assert "Running" == (await cluster.pod("processors"))["status"]["phase"]

        await cluster.delete_pod("equal")
        await cluster.pod_in_phase("high", "Running", EVICTED_SECONDS)
        assert {"processors"} == await evicted(cluster)
