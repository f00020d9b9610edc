"""
A share by a ResourceClaim survives the end of kubelet and plugin, and ends with the last Pod that uses it.

On a Node of kind `dra`, with the real kubelet and kube-scheduler. After each test nothing of a claim is on the Node.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from hamicommon.model import Object
from harness.clusters.claiming import API, ClaimingCluster
from harness.clusters.release import HAMI
from harness.invariants import check
from harness.isolation import own_namespace
from harness.load import coming_and_going
from harness.manifests import a_pod
from promises.failures.claim_checkpoint import MOMENTS, checkpoint
from promises.failures.test_kubelet_fails import runs
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]

DAEMON_SET = f"/apis/apps/v1/namespaces/{HAMI}/daemonsets/hami-device-plugin-dra"
WAIT_SECONDS = 90.0
BACK_SECONDS = 2.0
"""The time in which the ResourceSlice that a starting kubelet deletes is back."""


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(claiming_cluster: ClaimingCluster) -> AsyncIterator[ClaimingCluster]:
    """The real cluster with a Node of kind `dra`, on which no Pod is before and nothing of a claim after the test."""
    async with own_namespace(claiming_cluster):
        yield claiming_cluster
        await claiming_cluster.delete_all_pods()
        await claiming_cluster.nothing_left()
        await eventually(lambda: not checkpoint(claiming_cluster), "the kubelet remembers no claim", WAIT_SECONDS)


async def has_exactly(cluster: ClaimingCluster, name: str, memory_mib: int) -> Object:
    """Wait until a Pod runs, assert that it has *memory_mib* and a quarter of a device, and return it."""
    pod = await cluster.pod_in_phase(name, "Running", WAIT_SECONDS)
    environment = cluster.environment(pod)
    limits = {key: value for key, value in environment.items() if key.startswith("CUDA_DEVICE_MEMORY_LIMIT_")}
    assert ({"CUDA_DEVICE_MEMORY_LIMIT_0": f"{memory_mib}m"}, "25") == (limits, environment["CUDA_DEVICE_SM_LIMIT"])
    [[share]] = await cluster.granted(pod)
    assert (share.uuid, memory_mib) == (environment["HAMI_DEVICE_UUIDS"], share.memory_mib)
    return pod


async def is_counted_once(cluster: ClaimingCluster, *memory_mib: int) -> None:
    """Wait until the records of the Node are of claims with these amounts, and the scheduler counts the same."""

    def remembered() -> bool:
        found = [share.memory_mib for grant in cluster.records().values() for share in grant.shares("gpu")]
        return sorted(found) == sorted(memory_mib)

    await eventually(remembered, f"the Node has records of {memory_mib} MiB", WAIT_SECONDS)
    await check(cluster)


def quarter(name: str, memory_mib: int, **more: Any) -> Object:
    """Return a Pod that asks for *memory_mib* and a quarter of a device."""
    return a_pod(name, gpu=1, gpumem=memory_mib, gpucores=25, **more)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("part", ["kubelet", "plugin"])
async def test_part_killed_around_a_checkpoint_of_the_kubelet_costs_no_pod(
    cluster: ClaimingCluster, part: str, moment: str
) -> None:
    """Kubelet or plugin is killed before or after one of the two. The Pod gets exactly its share, counted once."""
    killed = f"{part}-{cluster.node}"
    async with MOMENTS[moment](cluster, quarter("p", 3000)):
        await cluster.kill(killed)
    await cluster.restart(killed)

    await has_exactly(cluster, "p", 3000)
    await is_counted_once(cluster, 3000)


@asynccontextmanager
async def away(cluster: ClaimingCluster) -> AsyncIterator[None]:
    """During a block, have no plugin on the Node. Its DaemonSet has no Node meanwhile."""
    await _select(cluster, "on")
    try:
        await eventually(partial(_has_pods, cluster, 0), "the plugin has ended", WAIT_SECONDS)
        yield
    finally:
        await _select(cluster, None)
        await cluster.replaced()


async def _select(cluster: ClaimingCluster, value: str | None) -> None:
    await cluster.api.patch(DAEMON_SET, {"spec": {"template": {"spec": {"nodeSelector": {"e2e/away": value}}}}})


async def _has_pods(cluster: ClaimingCluster, count: int) -> bool:
    labels = "app.kubernetes.io/component=hami-device-plugin"
    query = {"labelSelector": labels, "fieldSelector": f"spec.nodeName={cluster.node}"}
    return len((await cluster.api.list(f"/api/v1/namespaces/{HAMI}/pods", **query))[0]) == count


async def test_plugin_may_be_away_for_20_and_for_40_seconds(cluster: ClaimingCluster) -> None:
    """
    No container notices. A Pod that comes meanwhile waits, and gets its share when the plugin is back.

    After 30 seconds without a plugin the kubelet deletes the ResourceSlice, so later Pods wait for a Node.
    """
    await cluster.create(quarter("before", 3000))
    before = runs(await has_exactly(cluster, "before", 3000))
    for seconds, has_slice in ((20, True), (40, False)):
        async with away(cluster):
            await cluster.create(quarter(f"early-{seconds}", 1000 + seconds))
            await asyncio.sleep(seconds)  # its length is what is promised
            assert has_slice == bool(await cluster.slices())
            await cluster.create(quarter(f"late-{seconds}", 2000 + seconds))
            assert "Pending" == (await cluster.pod(f"early-{seconds}"))["status"]["phase"]

        await has_exactly(cluster, f"early-{seconds}", 1000 + seconds)
        await has_exactly(cluster, f"late-{seconds}", 2000 + seconds)
        assert before == runs(await has_exactly(cluster, "before", 3000))
    await is_counted_once(cluster, 3000, 1020, 2020, 1040, 2040)


async def test_rolling_update_of_the_plugin_fails_no_pod(cluster: ClaimingCluster) -> None:
    """The next plugin registers with the kubelet beside the last one, while Pods come and go."""
    await cluster.create(quarter("before", 3000))
    before = runs(await has_exactly(cluster, "before", 3000))
    sockets: list[set[str]] = []
    watching = asyncio.create_task(_watch_sockets(cluster, sockets))
    async with coming_and_going(cluster) as ran:
        await eventually(lambda: ran, "Pods come and go", WAIT_SECONDS)
        await cluster.roll("ds/hami-device-plugin-dra")
        rolled = len(ran)
        await eventually(lambda: len(ran) > rolled + 2, "Pods come and go after the update", WAIT_SECONDS)
    watching.cancel()

    assert 2 == max(map(len, sockets))
    assert 1 == len(sockets[0]) == len(sockets[-1])
    assert sockets[0] != sockets[-1]
    events, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/events")
    assert [] == [each for each in events if each["type"] == "Warning" and each["reason"] != "FailedScheduling"]
    assert before == runs(await has_exactly(cluster, "before", 3000))


async def _watch_sockets(cluster: ClaimingCluster, seen: list[set[str]]) -> None:
    """Add the sockets by which the kubelet knows plugins of the driver to *seen*, whenever they have changed."""
    folder = cluster.control_plane.node(cluster.node).path("/var/lib/kubelet/plugins_registry")
    while True:
        found = {path.name for path in folder.glob("[!.]*-reg.sock")}
        if seen[-1:] != [found]:
            seen.append(found)
        await asyncio.sleep(0.01)


async def test_slice_is_back_within_two_seconds_of_a_restart_of_the_kubelet(cluster: ClaimingCluster) -> None:
    """Each kubelet deletes it when it starts."""
    _, version = await cluster.api.list(f"{API}/resourceslices")
    watching = asyncio.create_task(_time_without_slice(cluster, version))

    await cluster.kill(f"kubelet-{cluster.node}")
    await cluster.restart(f"kubelet-{cluster.node}")

    assert await asyncio.wait_for(watching, WAIT_SECONDS) <= BACK_SECONDS


async def _time_without_slice(cluster: ClaimingCluster, version: str) -> float:
    """Return how long there is no slice, in seconds, the next time that there is none after *version*."""
    clock, gone = asyncio.get_running_loop().time, 0.0
    async for change, _ in cluster.api.watch(f"{API}/resourceslices", version):
        if change == "DELETED":
            gone = clock()
        elif change == "ADDED" and gone:
            return clock() - gone
    raise AssertionError("the watch has ended")
