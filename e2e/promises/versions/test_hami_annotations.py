"""
Annotations that any version of HAMi wrote on Nodes and Pods are read, so services can be replaced one by one.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from hamicommon.model import Object
from harness.cluster import Cluster
from harness.manifests import a_pod
from testbed.waiting import eventually

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
    """Return a Node that HAMi's plugin registered."""
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
    """Return the extender's answer for *pod* and the foreign Node."""
    return await cluster.ask_filter({"Pod": pod, "NodeNames": ["foreign"]})


def asking(memory_mib: int, namespace: str) -> Object:
    """Return the requesting Pod. It is always the same one, so that each filter replaces its reservation."""
    pod = a_pod("asking", gpu=1, gpumem=memory_mib)
    pod["metadata"] |= {"uid": "asking", "namespace": namespace}
    return pod


async def fits(cluster: Cluster, memory_mib: int) -> bool:
    """Return whether a share of *memory_mib* fits the foreign Node."""
    answer = await filtered(cluster, asking(memory_mib, cluster.namespace))
    await filtered(cluster, asking(10**6, cluster.namespace))
    return bool(answer["NodeNames"] == ["foreign"])


async def is_counted_once(cluster: Cluster) -> bool:
    """Return whether the foreign Node is known, and a resident's grant of 20000 MiB is all that it has lost."""
    return await fits(cluster, 4576) and not await fits(cluster, 4577)


@asynccontextmanager
async def foreign_node(cluster: Cluster, inventory: str) -> AsyncIterator[None]:
    """During a block, the cluster has a Node of HAMi's. The Pods of the test are deleted before it."""
    await cluster.create(a_foreign_node(inventory))
    try:
        yield
    finally:
        await cluster.delete_all_pods(grace_seconds=0)
        await cluster.api.delete("/api/v1/nodes/foreign")


def a_resident(grant: str, name: str = "resident", **spec: str) -> Object:
    """Return a Pod to which HAMi has granted 20000 MiB and 50 %. The webhook ignores it."""
    pod = a_pod(name, gpu=1, gpumem=20000, gpucores=50, spec=spec)
    pod["metadata"] |= {
        "labels": {"hami.io/webhook": "ignore"},
        "annotations": {
            "hami.io/vgpu-node": "foreign",
            "hami.io/bind-phase": "success",
            "hami.io/vgpu-devices-allocated": grant,
        },
    }
    return pod


@pytest.mark.parametrize("version", INVENTORIES)
async def test_inventory_of_every_version_is_read(cluster: Cluster, version: str) -> None:
    """A share of the device's size fits, and one MiB more does not."""
    async with foreign_node(cluster, INVENTORIES[version]):

        async def registered() -> bool:
            return await fits(cluster, 24576)

        await eventually(registered, "the node is registered")
        assert not await fits(cluster, 24577)


@pytest.mark.parametrize("version", GRANTS)
async def test_grant_of_every_version_is_counted(cluster: Cluster, version: str) -> None:
    """Memory that HAMi granted to a running Pod is not granted again."""
    async with foreign_node(cluster, INVENTORIES["2.10"]):
        await cluster.create(a_resident(GRANTS[version], nodeName="foreign"))

        await eventually(partial(is_counted_once, cluster), "the grant is counted")


async def test_forged_grant_on_an_unbound_pod_changes_nothing(cluster: Cluster) -> None:
    """Annotations count only on bound Pods, so a tenant cannot occupy devices by writing them."""
    grant = GRANTS["2.10 with a lost empty slot"]
    async with foreign_node(cluster, INVENTORIES["2.10"]):
        await cluster.create(a_resident(grant, "forged", schedulerName="nobody"))
        await cluster.create(a_resident(grant, nodeName="foreign"))

        await eventually(partial(is_counted_once, cluster), "only the bound Pod's grant is counted")
