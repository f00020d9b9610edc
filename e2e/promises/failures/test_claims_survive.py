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

from hamicommon.dra.names import DRA
from hamicommon.model import Object
from harness.claims import API
from harness.clusters.claiming import ClaimingCluster
from harness.clusters.dra import DraCluster
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.invariants import check
from harness.isolation import own_namespace
from harness.load import coming_and_going
from harness.manifests import a_pod
from promises.failures.claim_checkpoint import MOMENTS, checkpoint, says
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
    async with clean_before_and_after(claiming_cluster):
        yield claiming_cluster


@asynccontextmanager
async def clean_before_and_after(cluster: DraCluster) -> AsyncIterator[None]:
    """Use a new namespace during a block. After it the Node is of kind `dra`, and nothing of a claim is on it."""
    async with own_namespace(cluster):
        yield
        await cluster.label(DRA)
        await cluster.delete_all_pods()
        await cluster.nothing_left()
        await eventually(lambda: not checkpoint(cluster), "the kubelet remembers no claim", WAIT_SECONDS)


async def has_exactly(cluster: DraCluster, name: str, memory_mib: int) -> Object:
    """Wait until a Pod runs, assert that it has *memory_mib* and a quarter of a device, and return it."""
    pod = await cluster.pod_in_phase(name, "Running", WAIT_SECONDS)
    environment = cluster.environment(pod)
    limits = {key: value for key, value in environment.items() if key.startswith("CUDA_DEVICE_MEMORY_LIMIT_")}
    assert ({"CUDA_DEVICE_MEMORY_LIMIT_0": f"{memory_mib}m"}, "25") == (limits, environment["CUDA_DEVICE_SM_LIMIT"])
    [[share]] = await cluster.granted(pod)
    assert (share.uuid, memory_mib) == (environment["HAMI_DEVICE_UUIDS"], share.memory_mib)
    return pod


async def is_counted_once(cluster: DraCluster, *memory_mib: int) -> None:
    """Wait until exactly these amounts are prepared on the Node, and the scheduler counts the same."""
    expected = sorted(memory_mib)
    await eventually(lambda: cluster.prepared_mib() == expected, f"{expected} MiB are prepared", WAIT_SECONDS)
    await check(cluster)


def quarter(name: str, memory_mib: int, **more: Any) -> Object:
    """Return a Pod that asks for *memory_mib* and a quarter of a device."""
    return a_pod(name, gpu=1, gpumem=memory_mib, gpucores=25, **more)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("part", ["kubelet", "plugin"])
async def test_part_killed_around_a_checkpoint_of_the_kubelet_costs_no_pod(
    cluster: DraCluster, part: str, moment: str
) -> None:
    """Kubelet or plugin is killed before or after one of the two. The Pod gets exactly its share, counted once."""
    killed = f"{part}-{cluster.node}"
    async with MOMENTS[moment](cluster, quarter("p", 3000)):
        await cluster.kill(killed)
    await cluster.restart(killed)

    await has_exactly(cluster, "p", 3000)
    await is_counted_once(cluster, 3000)


@asynccontextmanager
async def away(cluster: DraCluster) -> AsyncIterator[None]:
    """During a block, have no plugin on the Node. Its DaemonSet has no Node meanwhile."""
    await _select(cluster, "on")
    try:
        await eventually(partial(_has_pods, cluster, 0), "the plugin has ended", WAIT_SECONDS)
        yield
    finally:
        await _select(cluster, None)
        await cluster.replaced()


async def _select(cluster: DraCluster, value: str | None) -> None:
    await cluster.api.patch(DAEMON_SET, {"spec": {"template": {"spec": {"nodeSelector": {"e2e/away": value}}}}})


async def _has_pods(cluster: DraCluster, count: int) -> bool:
    labels = "app.kubernetes.io/component=hami-device-plugin"
    query = {"labelSelector": labels, "fieldSelector": f"spec.nodeName={cluster.node}"}
    return len((await cluster.api.list(f"/api/v1/namespaces/{HAMI}/pods", **query))[0]) == count


async def test_plugin_may_be_away_for_20_and_for_40_seconds(cluster: DraCluster) -> None:
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


async def test_rolling_update_of_the_plugin_fails_no_pod(cluster: DraCluster) -> None:
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
    assert [] == [each for each in events if each["type"] == "Warning" and "kubelet" == each["source"].get("component")]
    assert before == runs(await has_exactly(cluster, "before", 3000))


async def _watch_sockets(cluster: DraCluster, seen: list[set[str]]) -> None:
    """Add the sockets by which the kubelet knows plugins of the driver to *seen*, whenever they have changed."""
    folder = cluster.control_plane.node(cluster.node).path("/var/lib/kubelet/plugins_registry")
    while True:
        found = {path.name for path in folder.glob("[!.]*-reg.sock")}
        if seen[-1:] != [found]:
            seen.append(found)
        await asyncio.sleep(0.01)


async def test_slice_is_back_within_two_seconds_of_a_restart_of_the_kubelet(cluster: DraCluster) -> None:
    """Each kubelet deletes it when it starts."""
    _, version = await cluster.api.list(f"{API}/resourceslices")
    watching = asyncio.create_task(_time_without_slice(cluster, version))

    await cluster.kill(f"kubelet-{cluster.node}")
    await cluster.restart(f"kubelet-{cluster.node}")

    assert await asyncio.wait_for(watching, WAIT_SECONDS) <= BACK_SECONDS


async def _time_without_slice(cluster: DraCluster, version: str) -> float:
    """Return how long there is no slice, in seconds, the next time that there is none after *version*."""
    clock, gone = asyncio.get_running_loop().time, 0.0
    async for change, _ in cluster.api.watch(f"{API}/resourceslices", version):
        if change == "DELETED":
            gone = clock()
        elif change == "ADDED" and gone:
            return clock() - gone
    raise AssertionError("the watch has ended")


def using(claim: str, name: str) -> Object:
    """Return the Pod *name* that uses a claim of its namespace."""
    pod = a_pod(name)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim}]
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    return pod


async def force_delete(cluster: DraCluster, name: str) -> None:
    """Delete a Pod without waiting for its kubelet."""
    await cluster.api.delete(f"/api/v1/namespaces/{cluster.namespace}/pods/{name}", 0)


async def test_pod_deleted_by_force_and_made_again_has_the_new_share(cluster: DraCluster) -> None:
    """Its claim is another one, and the old one is unprepared."""
    await cluster.create(quarter("p", 3000))
    await has_exactly(cluster, "p", 3000)

    await force_delete(cluster, "p")
    await cluster.create(quarter("p", 2000))

    await has_exactly(cluster, "p", 2000)
    await is_counted_once(cluster, 2000)


async def test_pod_deleted_by_force_and_made_again_uses_the_same_claim(cluster: ClaimingCluster) -> None:
    """The kubelet may still end the first Pod when the second one comes."""
    await cluster.create_claim("own", gpu=1, gpumem=3000, gpucores=25)
    await cluster.create(using("own", "p"))
    first = await has_exactly(cluster, "p", 3000)

    await force_delete(cluster, "p")
    await cluster.create(using("own", "p"))

    assert first["metadata"]["uid"] != (await has_exactly(cluster, "p", 3000))["metadata"]["uid"]
    await is_counted_once(cluster, 3000)


async def test_claim_and_pod_made_again_under_their_names_have_the_new_share(cluster: ClaimingCluster) -> None:
    """The kubelet refuses the new claim while it remembers the old one, and tries again."""
    await cluster.create_claim("own", gpu=1, gpumem=3000, gpucores=25)
    await cluster.create(using("own", "p"))
    await has_exactly(cluster, "p", 3000)

    await force_delete(cluster, "p")
    await delete_claim(cluster, "own")
    await cluster.create_claim("own", gpu=1, gpumem=2000, gpucores=25)
    await cluster.create(using("own", "p"))

    await has_exactly(cluster, "p", 2000)
    await is_counted_once(cluster, 2000)


async def delete_claim(cluster: ClaimingCluster, name: str, *, by_force: bool = False) -> None:
    """Delete a claim and wait until it is gone. *by_force* removes the finalizer that keeps it while it is used."""
    path = f"{cluster.in_namespace}/resourceclaims/{name}"
    await cluster.api.delete(path)
    if by_force:
        await cluster.api.patch(path, {"metadata": {"finalizers": None}})

    async def is_gone() -> bool:
        return not await cluster.api.exists(path)

    await eventually(is_gone, f"ResourceClaim {name} is gone", WAIT_SECONDS)


async def test_pods_of_one_claim_have_one_share_until_the_last_ends(cluster: ClaimingCluster) -> None:
    """It is counted once, and unprepared after the last one."""
    await cluster.create_claim("own", gpu=1, gpumem=3000, gpucores=25)
    for name in ("first", "second"):
        await cluster.create(using("own", name))
    before = [runs(await has_exactly(cluster, name, 3000)) for name in ("first", "second")][1]
    await is_counted_once(cluster, 3000)
    prepared = cluster.leftovers()

    await cluster.delete_pod("first")

    assert before == runs(await has_exactly(cluster, "second", 3000))
    await is_counted_once(cluster, 3000)
    assert prepared == cluster.leftovers()
    await cluster.delete_pod("second")
    await cluster.nothing_left()


async def test_share_of_a_claim_that_was_removed_by_force_is_free_once_its_pod_has_ended(
    cluster: ClaimingCluster,
) -> None:
    """kube-scheduler gives it to the next Pod at once, which the plugin refuses until then."""
    await cluster.create_claim("own", gpu=1, gpumem=9000, gpucores=25)
    await cluster.create(using("own", "p"))
    [[share]] = await cluster.granted(await has_exactly(cluster, "p", 9000))
    await delete_claim(cluster, "own", by_force=True)
    await cluster.create(quarter("next", 9000, annotations={"nvidia.com/use-gpuuuid": share.uuid}))
    await says(cluster, "next", f"device {share.uuid} has 16384 MiB of memory, the claim has 9000, and 9000 are taken")

    await cluster.delete_pod("p")

    await has_exactly(cluster, "next", 9000)
    await is_counted_once(cluster, 9000)


@pytest.mark.breaks(
    "memory", "kube-scheduler does not know what Pods hold by resources, and the plugin refuses the claim"
)
async def test_node_changes_its_kind_and_back_with_pods_of_both(cluster: ClaimingCluster) -> None:
    """Every Pod keeps its container and its share, and none gets what another one has of a device."""
    here: dict[str, Any] = {"nodeSelector": {"kubernetes.io/hostname": cluster.node}}
    await cluster.label(None)
    await cluster.node_ready(cluster.node, WAIT_SECONDS)
    await cluster.create_by_resources(quarter("replica", 9000, spec=here))
    replica = await cluster.pod_in_phase("replica", "Running", WAIT_SECONDS)
    environment = cluster.environment(replica)
    of_replica = {"nvidia.com/use-gpuuuid": environment["HAMI_DEVICE_UUIDS"]}

    await cluster.label(DRA)
    await cluster.node_ready(cluster.node, WAIT_SECONDS)
    await cluster.create(quarter("claimed", 5000, annotations=of_replica))
    claimed = await has_exactly(cluster, "claimed", 5000)
    await cluster.create(quarter("too-much", 9000, annotations=of_replica))
    await says(cluster, "too-much", "Pods with HAMi's annotation")
    await cluster.delete_pod("too-much")

    await cluster.label(None)
    await eventually(partial(node_says, cluster, "1 ResourceClaims are prepared here"), "why it waits", WAIT_SECONDS)
    assert 0 == await RealCluster.offered(cluster, cluster.node)
    assert runs(claimed) == runs(await has_exactly(cluster, "claimed", 5000))

    await cluster.label(DRA)
    await cluster.node_ready(cluster.node, WAIT_SECONDS)
    await cluster.delete_pod("claimed")
    await cluster.nothing_left()
    await cluster.label(None)
    await cluster.node_ready(cluster.node, WAIT_SECONDS)
    await cluster.create_by_resources(quarter("too-much", 9000, annotations=of_replica, spec=here))
    await cluster.create_by_resources(quarter("beside", 7000, annotations=of_replica, spec=here))
    await cluster.pod_in_phase("beside", "Running", WAIT_SECONDS)
    assert "nodeName" not in (await cluster.pod("too-much"))["spec"]
    assert (runs(replica), environment) == (runs(await cluster.pod("replica")), cluster.environment(replica))
    await check(cluster)


async def node_says(cluster: DraCluster, text: str) -> bool:
    """Return whether an Event of the Node has *text*."""
    events, _ = await cluster.api.list("/api/v1/events", fieldSelector=f"involvedObject.name={cluster.node}")
    return any(text in event.get("message", "") for event in events)
