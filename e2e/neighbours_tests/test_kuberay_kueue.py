"""
RayClusters in Kueue's queues cost the shares of their workers.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controlplane.cluster import ClusterError
from harness.clusters.real import RealCluster
from neighbours import kuberay, kueue, objects

NEIGHBOUR = kuberay.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(900)]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_both(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster with KubeRay's operator and Kueue."""
    await real_cluster.deploy()
    async with kuberay.running(real_cluster):
        await asyncio.to_thread(kueue.CHART.install, real_cluster.control_plane)
        yield real_cluster
        await asyncio.to_thread(kueue.CHART.remove, real_cluster.control_plane)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_both: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, with the queues of Kueue's example, and no RayClusters after the test."""
    async with kueue.queued(with_both, *kueue.manifests("queues.yaml")):
        yield with_both
        await kuberay.nothing_left(with_both)


async def test_ray_cluster_costs_the_shares_of_its_workers(cluster: RealCluster) -> None:
    """In a Kueue queue a RayCluster costs its workers' shares, and one beyond the quota makes no Pod until it fits."""
    for name, workers, gpumem in (("first", 2, 20000), ("second", 1, 12000)):
        manifest = kuberay.a_cluster(name, workers, limits={"gpu": 1, "gpumem": gpumem})
        manifest["metadata"]["labels"] = {kueue.QUEUE: "team-a"}
        await objects.apply(cluster, manifest)
        if name == "first":
            workload = await kueue.admitted(cluster, "first")

    said = await kueue.pending(cluster, "second")
    pods = [await kuberay.pods_of(cluster, "second", kind) for kind in ("head", "worker")]

    assert {"gpu": 2, "gpumem": 40000} == kueue.cost(workload)
    assert "insufficient unused quota for nvidia.com/gpumem in flavor shares, 4k more needed" in said
    assert [[], []] == pods
    await objects.delete(cluster, kuberay.a_cluster("first"))
    [worker] = await kuberay.running_workers(cluster, "second", 1)
    assert ["12000m 0"] == cluster.shares_in(worker, kuberay.WORKER)


@pytest.mark.limit
async def test_autoscaler_is_rejected_in_a_queue(cluster: RealCluster) -> None:
    """Kueue rejects a RayCluster with Ray's autoscaler in a queue, unless its gate for elastic jobs is on."""
    manifest = kuberay.a_cluster("a", scales=True)
    manifest["metadata"]["labels"] = {kueue.QUEUE: "team-a"}

    with pytest.raises(ClusterError, match="autoscaling"):
        await objects.apply(cluster, manifest)
