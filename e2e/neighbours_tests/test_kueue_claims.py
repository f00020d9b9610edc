"""
Kueue's quotas and ResourceClaims, on a Node of kind `dra`.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hamicommon.dra.names import DRIVER
from hamicommon.wire import keys
from harness.clusters.real import RealCluster
from neighbours import kueue, objects
from testbed.waiting import eventually

NEIGHBOUR = kueue.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]
WAIT_SECONDS = 90


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def with_claims(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster, whose last Node is of kind `dra`, with Kueue that counts claims."""
    node = real_cluster.nodes[-1].name
    await real_cluster.deploy(values={"dra.enabled": True})
    await real_cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {keys.NODE_KIND: "dra"}}})

    async def has_slices() -> bool:
        path = "/apis/resource.k8s.io/v1/resourceslices"
        found, _ = await real_cluster.api.list(path, fieldSelector=f"spec.driver={DRIVER}")
        return bool(found)

    await eventually(has_slices, "the Node's ResourceSlice exists", WAIT_SECONDS)
    await asyncio.to_thread(kueue.CHART.install, real_cluster.control_plane, "claims-values.yaml")
    yield real_cluster
    await asyncio.to_thread(kueue.CHART.remove, real_cluster.control_plane)
    await real_cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {keys.NODE_KIND: None}}})
    await real_cluster.node_ready(node, WAIT_SECONDS)
    await real_cluster.deploy()


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(with_claims: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, with the example's queue and its template of claims."""
    *queues, _ = kueue.manifests("claims.yaml")
    async with kueue.queued(with_claims, *queues):
        yield with_claims


async def test_claims_of_templates_cost_their_devices(cluster: RealCluster) -> None:
    """With Kueue's alpha gate, a Job's claims cost one for each device, and a second Job waits."""
    [*_, job] = kueue.manifests("claims.yaml")
    await objects.apply(cluster, job)

    workload = await kueue.admitted(cluster, "claims")
    await kueue.running(cluster, "claims", 2)

    assert {"hami.io/claimed-devices": 2} == kueue.cost(workload)
    await objects.apply(cluster, {**job, "metadata": {**job["metadata"], "name": "second"}})
    assert "hami.io/claimed-devices in flavor claims, 2 more needed" in await kueue.pending(cluster, "second")


@pytest.mark.limit
async def test_amounts_of_claims_cost_nothing(cluster: RealCluster) -> None:
    """A claim of 12000 MiB costs as much as one of 3000 MiB: Kueue counts devices, and no capacity of them."""
    [*_, template, job] = kueue.manifests("claims.yaml")
    [request] = template["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["capacity"]["requests"]["memory"] = "12000Mi"
    await objects.apply(cluster, {**template, "metadata": {"name": "large"}})
    job["spec"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "large"
    job["spec"] |= {"parallelism": 1, "completions": 1}
    await objects.apply(cluster, job)

    workload = await kueue.admitted(cluster, "claims")
    await kueue.running(cluster, "claims", 1)

    assert {"hami.io/claimed-devices": 1} == kueue.cost(workload)


@pytest.mark.limit
async def test_claims_with_selectors_are_never_admitted(cluster: RealCluster) -> None:
    """A Job whose template of claims has a selector waits for ever: Kueue counts no CEL selectors."""
    [*_, template, job] = kueue.manifests("claims.yaml")
    [request] = template["spec"]["spec"]["devices"]["requests"]
    request["exactly"]["selectors"] = [{"cel": {"expression": "true"}}]
    await objects.apply(cluster, {**template, "metadata": {"name": "selects"}})
    job["spec"]["template"]["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = "selects"
    await objects.apply(cluster, job)

    assert "CEL selectors are not supported" in await kueue.pending(cluster, "claims")
