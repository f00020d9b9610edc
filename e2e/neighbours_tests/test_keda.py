"""
KEDA scales Deployments of shares by the metrics of the services.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio

from hamicommon.model import Object
from harness.client import asked_json, until_explained
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from harness.manifests import SLEEP, a_pod
from neighbours import keda
from neighbours.objects import apply, delete
from testbed.waiting import eventually

NEIGHBOUR = keda.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(900)]
HALF = {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 30000, "nvidia.com/gpucores": 30}
"""One such share fits each of the two devices with 40960 MiB, and none fits the two with 16384."""
LOAD = ("gpu-hold", "--mib", "100", "--busy", "100")
STOP = """
import os, pathlib, signal
for path in pathlib.Path("/proc").glob("[0-9]*"):
    if int(path.name) != os.getpid() and b"gpu-hold" in (path / "cmdline").read_bytes():
        os.kill(int(path.name), signal.SIGTERM)
"""
"""Ends the load of a container, which has no pkill."""
MOST = 5
"""Replicas for two devices that are busy for all of the time, by the threshold of the example."""
STABLE_SECONDS = 40
"""Two decisions of the HorizontalPodAutoscaler, and some scrapes."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_keda(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster with KEDA and Prometheus."""
    await real_cluster.deploy()
    async with keda.running(real_cluster):
        yield real_cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_keda: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own."""
    async with own_namespace(with_keda):
        yield with_keda


@asynccontextmanager
async def applied(cluster: RealCluster, *manifests: Object) -> AsyncIterator[None]:
    """Have *manifests* during a block, and no Pod of theirs afterwards."""
    await apply(cluster, *manifests)
    try:
        yield
    finally:
        await delete(cluster, *reversed(manifests))


@asynccontextmanager
async def load(cluster: RealCluster, pod: str) -> AsyncIterator[None]:
    """Run kernels without a pause in a container during a block."""
    command = ("exec", pod, f"--namespace={cluster.namespace}", "--", *LOAD)
    running = asyncio.create_task(asyncio.to_thread(cluster.control_plane.kubectl, *command))
    try:
        yield
    finally:
        stop = ("exec", pod, f"--namespace={cluster.namespace}", "--", "python", "-c", STOP)
        await asyncio.to_thread(cluster.control_plane.kubectl, *stop)
        await running


async def test_load_adds_replicas_and_idleness_removes_them(cluster: RealCluster) -> None:
    """With a query of busy devices, load adds a replica with exactly its share, and without load it is removed."""
    deployment, scaled = keda.manifests(cluster, "busy.yaml")
    scaled["spec"]["maxReplicaCount"] = 2
    async with applied(cluster, deployment, scaled):
        [first] = await keda.replicas(cluster, "serve", 1)
        async with load(cluster, first["metadata"]["name"]):
            pods = await keda.replicas(cluster, "serve", 2)
            shares = [cluster.shares_in(pod) for pod in pods]

        await keda.replicas(cluster, "serve", 1)
    assert [["12000m 30"]] * 2 == shares


async def test_throttled_replica_gets_help(cluster: RealCluster) -> None:
    """With a query of throttled time, a replica that waits for its part of a busy device's time gets another beside."""
    deployment, scaled = keda.manifests(cluster, "throttled.yaml")
    device = {"nvidia.com/use-gpuuuid": cluster.nodes[0].gpus[0].uuid}
    deployment["spec"]["template"]["metadata"]["annotations"] = device
    await cluster.create(a_pod("other", annotations=device, command=LOAD, gpu=1, gpumem=12000, gpucores=30))
    async with applied(cluster, deployment, scaled):
        [first] = await keda.replicas(cluster, "serve", 1)
        await asyncio.sleep(STABLE_SECONDS)
        assert 1 == len(await keda.pods_of(cluster, "serve"))  # busy is the other Pod
        async with load(cluster, first["metadata"]["name"]):
            await keda.replicas(cluster, "serve", 2)


async def test_replica_beyond_the_cards_waits_and_is_not_busy(cluster: RealCluster) -> None:
    """With full cards the next replica waits and is explained, and as it is not busy, KEDA adds none because of it."""
    deployment, scaled = keda.manifests(cluster, "busy.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container |= {"command": list(LOAD), "resources": {"limits": HALF}}
    scaled["spec"]["maxReplicaCount"] = 2 * MOST
    async with applied(cluster, deployment, scaled):
        pods = await keda.replicas(cluster, "serve", 2, others_wait=True)
        waiting = next(pod["metadata"]["name"] for pod in pods if not pod["spec"].get("nodeName"))
        await until_explained(cluster, waiting)
        report = await asked_json(cluster, "explain", waiting, "-n", cluster.namespace)
        await asyncio.sleep(STABLE_SECONDS)

        pods = await keda.replicas(cluster, "serve", 2, others_wait=True)
    assert len(pods) <= MOST
    assert (report["verdict"], "30000 MiB" in report["summary"]) == ("refused", True)


async def test_background_work_starts_from_zero_and_yields(cluster: RealCluster) -> None:
    """A Deployment starts from zero while no Pod waits, and returns its share to a Pod that waits for one."""
    async with applied(cluster, *keda.manifests(cluster, "yields.yaml")):
        [background] = await keda.replicas(cluster, "background", 1)
        for name in ("other", "urgent"):
            await cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=30000))
        first = await cluster.pod_in_phase("urgent", "Running", keda.WAIT_SECONDS)

        assert ["30000m 0"] == cluster.shares_in(first)
        assert background["metadata"]["uid"] not in {
            pod["metadata"]["uid"] for pod in await keda.pods_of(cluster, "background")
        }


@pytest.mark.limit
async def test_no_busy_share_wakes_a_deployment_from_zero(cluster: RealCluster) -> None:
    """A Deployment that its own busy time has scaled to zero stays there: without Pods, nothing is busy."""
    deployment, scaled = keda.manifests(cluster, "busy.yaml")
    scaled["spec"] |= {"minReplicaCount": 0, "cooldownPeriod": 5}
    async with applied(cluster, deployment, scaled):
        await keda.replicas(cluster, "serve", 0)
        await asyncio.sleep(STABLE_SECONDS)

        assert not await keda.pods_of(cluster, "serve")


@pytest.mark.limit
async def test_background_work_without_room_starts_and_stops(cluster: RealCluster) -> None:
    """Work that yields and fits no device is started and stopped in turns: its own Pod counts as one that waits."""
    deployment, scaled = keda.manifests(cluster, "yields.yaml")
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    container["resources"]["limits"]["nvidia.com/gpumem"] = 45000
    seen: set[str] = set()

    async def has_come_again() -> bool:
        seen.update(pod["metadata"]["uid"] for pod in await keda.pods_of(cluster, "background"))
        return len(seen) > 1

    async with applied(cluster, deployment, scaled):
        await eventually(has_come_again, "another Pod of the same work waits", keda.WAIT_SECONDS)
