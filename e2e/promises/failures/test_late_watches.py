"""
Nothing is granted twice, and no Pod is forgotten, while services learn of changes late and not in their order.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from harness.cluster import Cluster
from harness.manifests import SLEEP, a_pod
from testbed.waiting import eventually

pytestmark = pytest.mark.embedded_only

LATE_SECONDS = 1.0
LAG = "/minicluster/watches/lag"
ON_A = {"nvidia.com/use-gputype": "A100"}
ROOM = 4
"""The shares of half a device that fit on node-a."""


@pytest_asyncio.fixture(loop_scope="session", params=["/pods", "/nodes", ""], ids=["pods", "nodes", "all"])
async def late(cluster: Cluster, request: pytest.FixtureRequest) -> AsyncIterator[None]:
    """The watches of one resource, or all, are late during the test."""
    await cluster.api.create(LAG, {"path": request.param, "seconds": LATE_SECONDS})
    yield
    await cluster.api.request("DELETE", LAG)


@pytest.mark.usefixtures("late")
async def test_waiting_pods_get_the_shares_of_ended_ones(cluster: Cluster) -> None:
    """Six Pods ask for four shares. When the four have ended, the other two run."""
    names = [f"p{number}" for number in range(ROOM + 2)]
    await asyncio.gather(
        *(cluster.create(a_pod(name, annotations=ON_A, command=SLEEP, gpu=1, gpumem=20000)) for name in names)
    )

    async def first_ones() -> set[str] | None:
        pods, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods")
        running = {pod["metadata"]["name"] for pod in pods if pod["status"]["phase"] == "Running"}
        return running if len(running) == ROOM else None

    first = await eventually(first_ones, "as many Pods run as fit")
    await asyncio.gather(*(cluster.delete_pod(name) for name in first))

    for name in set(names) - first:
        await cluster.pod_in_phase(name, "Running")
