"""
Karpenter adds Nodes for shares if it is told what a Node offers.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.client import asked_json
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from harness.manifests import a_pod
from neighbours import karpenter
from neighbours.charts import example
from testbed.waiting import eventually

NEIGHBOUR = karpenter.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]
WAIT_SECONDS = 90
TOO_MUCH_MIB = 45_000
"""No device has so much, neither one of the cluster nor one of the example's overlay."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_karpenter(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster with Karpenter and the example's NodePool."""
    await real_cluster.deploy()
    async with karpenter.running(real_cluster):
        await _kubectl(real_cluster, "apply", "nodepool.yaml")
        yield real_cluster


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_karpenter: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own. After the test, no Pod and no Node that Karpenter has added."""
    async with own_namespace(with_karpenter):
        yield with_karpenter
        await with_karpenter.delete_all_pods()
        await asyncio.to_thread(with_karpenter.control_plane.kubectl, "delete", "nodeclaims", "--all", "--timeout=90s")
        await _kubectl(with_karpenter, "delete", "nodeoverlay.yaml", "--ignore-not-found")


async def _kubectl(cluster: RealCluster, verb: str, file: str, *flags: str) -> None:
    await asyncio.to_thread(cluster.control_plane.kubectl, verb, "-f", str(example("karpenter", file)), *flags)


@pytest.mark.limit
async def test_without_an_overlay_no_node_is_added(cluster: RealCluster) -> None:
    """Without a NodeOverlay, Karpenter adds no Node for a share, and an Event of the Pod says so."""
    await cluster.create(a_pod("large", gpu=1, gpumem=TOO_MUCH_MIB))

    async def is_said() -> bool:
        said = [event["message"] for event in await cluster.events("large")]
        return any("no instance type has enough resources" in message for message in said)

    await eventually(is_said, "Karpenter says why it adds no Node", WAIT_SECONDS)
    assert not await karpenter.claims(cluster)


async def test_overlay_lets_a_node_be_added(cluster: RealCluster) -> None:
    """With a NodeOverlay of the resources of shares, Karpenter adds a Node for a Pod that no Node takes."""
    await _kubectl(cluster, "apply", "nodeoverlay.yaml")
    await cluster.create(a_pod("large", gpu=1, gpumem=20000, spec={"nodeSelector": {"karpenter.sh/nodepool": "gpus"}}))

    [claim] = await eventually(lambda: karpenter.claims(cluster), "Karpenter adds a Node", WAIT_SECONDS)

    requests = claim["spec"]["resources"]["requests"]
    assert ("1", "20k") == (requests["nvidia.com/gpu"], requests["nvidia.com/gpumem"])


@pytest.mark.limit
async def test_node_is_added_whose_devices_are_too_small(cluster: RealCluster) -> None:
    """Karpenter counts the sum of a Node's devices: it adds a Node for 45000 MiB, whose devices have 40960 each."""
    await _kubectl(cluster, "apply", "nodeoverlay.yaml")
    await cluster.create(a_pod("large", gpu=1, gpumem=TOO_MUCH_MIB))

    await eventually(lambda: karpenter.claims(cluster), "Karpenter adds a Node", WAIT_SECONDS)

    report = await asked_json(cluster, "explain", "large", "-n", cluster.namespace)
    assert (report["verdict"], report["node"]) == ("refused", None)
