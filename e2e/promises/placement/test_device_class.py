"""
Shares are scheduled as before when the cluster also offers its devices by DRA under the same resource name.
"""

from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
import pytest_asyncio

from harness.cluster import Cluster
from harness.manifests import a_pod
from minicluster.client import ApiError
from testbed.waiting import eventually

pytestmark = pytest.mark.real_only

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
NAME = "gpu.example.com"
REVIEW_SECONDS = 40


MANIFEST = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": NAME},
    "spec": {
        "selectors": [{"cel": {"expression": f"device.driver == '{NAME}'"}}],
        "extendedResourceName": "nvidia.com/gpu",
    },
}


@pytest_asyncio.fixture(loop_scope="session")
async def device_class(cluster: Cluster) -> AsyncIterator[str]:
    """The path of a DeviceClass that maps nvidia.com/gpu, as drivers for DRA bring it. It is gone after the test."""
    try:
        made = await cluster.api.create(CLASSES, MANIFEST)
    except ApiError as error:
        if error.status == 404:
            pytest.skip("this Kubernetes has no DeviceClasses of version v1")
        raise
    path = f"{CLASSES}/{NAME}"
    try:
        if "extendedResourceName" not in made["spec"]:
            pytest.skip("this Kubernetes does not map extended resources")
        yield path
    finally:
        with suppress(ApiError):
            await cluster.api.delete(path, 0)


async def test_pod_with_a_share_runs_beside_a_device_class_of_the_same_name(
    cluster: Cluster, device_class: str
) -> None:
    """Since Kubernetes 1.36, kube-scheduler looks for each of its resources in what the Node lists."""
    await cluster.create(a_pod("p", gpu=1, gpumem=3000, gpucores=10, priority=1))

    pod = await cluster.pod_in_phase("p", "Running", REVIEW_SECONDS)

    assert "3000m" == cluster.environment(pod)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_nodes_list_amounts_only_while_a_device_class_maps_the_count(cluster: Cluster, device_class: str) -> None:
    """Otherwise the default scheduler would place Pods by them."""

    async def lists() -> bool:
        node = await cluster.api.get(f"/api/v1/nodes/{cluster.nodes[0].name}")
        return "nvidia.com/gpumem" in node["status"]["allocatable"]

    async def lists_no_longer() -> bool:
        return not await lists()

    await eventually(lists, "the Node lists nvidia.com/gpumem", REVIEW_SECONDS)

    await cluster.api.delete(device_class, 0)

    await eventually(lists_no_longer, "the Node no longer lists nvidia.com/gpumem", REVIEW_SECONDS)
