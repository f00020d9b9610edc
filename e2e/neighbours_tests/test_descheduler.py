"""
The descheduler's default profile beside shares.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from neighbours import descheduler
from neighbours.charts import example
from testbed.waiting import eventually

NEIGHBOUR = descheduler.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster with two replicas with shares on one Node, in a namespace of its own, and no descheduler yet."""
    await real_cluster.deploy()
    async with own_namespace(real_cluster):
        flags = (f"--namespace={real_cluster.namespace}", "-f", str(example("descheduler", "replicas.yaml")))
        await asyncio.to_thread(real_cluster.control_plane.kubectl, "apply", *flags)
        nodes = await eventually(lambda: nodes_of(real_cluster), "both replicas run", descheduler.WAIT_SECONDS)
        assert len(set(nodes)) == 1
        yield real_cluster
        await asyncio.to_thread(descheduler.CHART.remove, real_cluster.control_plane)
        await asyncio.to_thread(real_cluster.control_plane.kubectl, "delete", "--wait", *flags)


async def nodes_of(cluster: RealCluster) -> list[str]:
    """Return the Nodes of both replicas, empty while they do not run."""
    pods, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods", labelSelector="app=serve")
    phases = [pod["status"]["phase"] for pod in pods]
    return [pod["spec"]["nodeName"] for pod in pods] if phases == ["Running", "Running"] else []


@pytest.mark.limit
async def test_default_profile_evicts_what_binpack_puts_together(cluster: RealCluster) -> None:
    """`RemoveDuplicates` of the default profile evicts one of two replicas on a Node, and binpack puts it back."""
    before = await descheduler.residents(cluster)
    await asyncio.to_thread(descheduler.CHART.install, cluster.control_plane, None)

    async def is_evicted() -> bool:
        return not (before.items() <= (await descheduler.residents(cluster)).items())

    await eventually(is_evicted, "a replica is evicted", descheduler.WAIT_SECONDS)
    await asyncio.to_thread(descheduler.CHART.remove, cluster.control_plane)
    nodes = await eventually(lambda: nodes_of(cluster), "both replicas run again", descheduler.WAIT_SECONDS)
    assert len(set(nodes)) == 1


async def test_profile_without_duplicates_evicts_nothing(cluster: RealCluster) -> None:
    """The default profile without `RemoveDuplicates` evicts no share and none of our services in five rounds."""
    before = await descheduler.residents(cluster)
    await asyncio.to_thread(descheduler.CHART.install, cluster.control_plane)

    await descheduler.rounds(cluster, 5)

    assert before == await descheduler.residents(cluster)
