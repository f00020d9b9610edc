"""
A share by a ResourceClaim survives the end of kubelet and plugin, and ends with the last Pod that uses it.

On a Node of kind `dra`, with the real kubelet and kube-scheduler. After each test nothing of a claim is on the Node.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from hamicommon.model import Object
from harness.clusters.claiming import ClaimingCluster
from harness.clusters.release import HAMI
from harness.invariants import check
from harness.isolation import own_namespace
from harness.manifests import a_pod
from promises.failures.claim_checkpoint import MOMENTS, checkpoint
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
