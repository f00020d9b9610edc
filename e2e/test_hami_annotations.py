"""
What HAMi of any version wrote on Nodes and Pods is honoured: a cluster can change one service at a time.
"""

import aiohttp
import pytest

from cluster import Cluster, eventually
from manifests import a_pod
from minicluster.client import Object

UUID = "GPU-11111111-2222-4333-8444-555555555555"
MODEL = "NVIDIA-NVIDIA A10"
INVENTORIES = {
    "2.4": f"{UUID},10,24576,100,{MODEL},0,true:",
    "2.7": f"{UUID},10,24576,100,{MODEL},0,true,0,hami-core:",
    "2.8": f'[{{"id":"{UUID}","count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","mode":"hami-core",'
    '"health":true,"devicepairscore":{}}]',
    "2.9": f'[{{"id":"{UUID}","count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","mode":"hami-core",'
    '"health":true,"devicepairscore":{}}]',
    "2.10": f'[{{"id":"{UUID}","count":10,"devmem":24576,"devcore":100,"type":"NVIDIA A10","mode":"hami-core",'
    '"health":true}]',
}
GRANTS = {
    "2.4": f"{UUID},NVIDIA,20000,50:;",
    "2.5 with a placeholder": f",,0,0:;{UUID},NVIDIA,20000,50:;",
    "2.7": f"{UUID},NVIDIA,20000,50:;",
    "2.9 with init": f";{UUID},NVIDIA,20000,50:;",
    "2.10 with a lost empty slot": f"{UUID},NVIDIA,20000,50:;",
    "2.10 with surplus empty slots": f"{UUID},NVIDIA,20000,50:;;;",
}


def a_foreign_node(inventory: str) -> Object:
    """Return a Node of a cluster that HAMi's own plugin registered."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": "foreign",
            "annotations": {
                "hami.io/node-nvidia-register": inventory,
                "hami.io/node-handshake": "Requesting_2026-01-01 00:00:00",
            },
        },
        "status": {
            "capacity": {"nvidia.com/gpu": "10", "cpu": "8", "memory": "32Gi", "pods": "110"},
            "allocatable": {"nvidia.com/gpu": "10", "cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


async def filtered(cluster: Cluster, pod: Object) -> Object:
    """Return the extender's answer for *pod* on the foreign node alone."""
    address = f"http://127.0.0.1:{cluster.ports['scheduler']}/filter"
    question = {"Pod": pod, "NodeNames": ["foreign"]}
    async with aiohttp.ClientSession() as session, session.post(address, json=question) as answer:
        found: Object = await answer.json()
        return found


async def fits(cluster: Cluster, memory_mib: int) -> bool:
    """Whether a share of *memory_mib* fits the foreign node."""
    pod = a_pod("asking", gpu=1, gpumem=memory_mib)
    pod["metadata"] |= {"uid": f"asking-{memory_mib}", "namespace": cluster.namespace}
    answer = await filtered(cluster, pod)
    return bool(answer["NodeNames"] == ["foreign"])


@pytest.fixture
def foreign_pod() -> Object:
    """Return a running Pod as HAMi's scheduler would have bound it."""
    pod = a_pod("resident", gpu=1, gpumem=20000, gpucores=50)
    pod["spec"]["nodeName"] = "foreign"
    return pod


@pytest.mark.parametrize("version", INVENTORIES)
async def test_inventory_of_every_version_is_read(cluster: Cluster, version: str) -> None:
    """A share fits up to the device's size, and not one MiB more."""
    await cluster.create(a_foreign_node(INVENTORIES[version]))
    try:

        async def registered() -> bool:
            return await fits(cluster, 24576)

        await eventually(registered, "the node is registered", 5)
        assert not await fits(cluster, 24577)
    finally:
        await cluster.api.delete("/api/v1/nodes/foreign")


@pytest.mark.parametrize("version", GRANTS)
async def test_grant_of_every_version_is_counted(cluster: Cluster, version: str, foreign_pod: Object) -> None:
    """What HAMi promised to a running Pod is not promised again."""
    await cluster.create(a_foreign_node(INVENTORIES["2.10"]))
    foreign_pod["metadata"]["annotations"] = {
        "hami.io/vgpu-node": "foreign",
        "hami.io/bind-phase": "success",
        "hami.io/vgpu-devices-allocated": GRANTS[version],
    }
    try:
        await cluster.create(foreign_pod)

        async def counted() -> bool:
            return not await fits(cluster, 4577)

        await eventually(counted, "the grant is counted", 5)
        assert await fits(cluster, 4576)
    finally:
        await cluster.api.delete(f"/api/v1/namespaces/{cluster.namespace}/pods/resident", 0)
        await cluster.api.delete("/api/v1/nodes/foreign")


async def test_forged_grant_on_an_unbound_pod_changes_nothing(cluster: Cluster) -> None:
    """Annotations count only with a node: a tenant cannot occupy devices by writing them."""
    await cluster.create(a_foreign_node(INVENTORIES["2.10"]))
    forged = a_pod(
        "forged",
        spec={"schedulerName": "nobody"},
        annotations={
            "hami.io/vgpu-node": "foreign",
            "hami.io/vgpu-devices-allocated": GRANTS["2.10 with a lost empty slot"],
        },
        gpu=1,
    )
    try:
        await cluster.create(forged)

        async def registered() -> bool:
            return await fits(cluster, 24576)

        assert await eventually(registered, "the node is registered", 5)
    finally:
        await cluster.api.delete("/api/v1/nodes/foreign")
