"""
A cluster's load without its machines: Nodes that kwok plays, Pods that ask for a share, and who creates them.

Owns what these objects look like; an inventory is written by the contract's own codec, as a device plugin writes it.
Knows nothing of who schedules.
"""

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import Any

from hamicommon.model import Device
from hamicommon.wire import keys
from hamicommon.wire.node_devices import encode_node_devices
from hardware import FakeNode
from minicluster.client import Client, Mirror, Object

NAMESPACE = "scale"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
REPLICAS = 10
"""Containers that may share one device: `deviceSplitCount` of the chart."""
IN_FLIGHT = 32
"""Requests at once while Pods are created."""


def a_node(name: str, device_count: int, *, is_identity: bool = True) -> Object:
    """Return a Node as its kubelet and its device plugin leave it; *is_identity* says that it needs no node lock."""
    gpus = FakeNode.of(name, "NVIDIA H100 80GB HBM3", 81559, device_count).gpus
    devices = [
        Device(gpu.uuid, REPLICAS, gpu.memory_mib, 100, gpu.name, index, index // 4, "hami-core")
        for index, gpu in enumerate(gpus)
    ]
    annotations = {"hami.io/node-nvidia-register": encode_node_devices(devices)}
    if is_identity:
        annotations[keys.NODE_ALLOCATION] = keys.NODE_ALLOCATION_IDENTITY
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(REPLICAS * device_count)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations, "labels": {"gpu": "on", "kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def a_pod(name: str, scheduler: str, limits: Mapping[str, int], node: str = "") -> Object:
    """Return a Pod for *scheduler* with NVIDIA's *limits* (`gpu`, `gpumem`, ...), for any Node or only *node*."""
    amounts = {f"nvidia.com/{key}": str(value) for key, value in limits.items()}
    container = {"name": "main", "image": "localhost/none", "resources": {"limits": amounts}}
    selector = {"kubernetes.io/hostname": node} if node else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"schedulerName": scheduler, "nodeSelector": selector, "containers": [container]},
    }


async def all_of(requests: Iterable[Awaitable[Any]]) -> None:
    """Await *requests* in their order, IN_FLIGHT of them at a time."""
    rest = iter(requests)

    async def worker() -> None:
        for request in rest:
            await request

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


class LockPlugins:
    """
    The device plugins of Nodes without identity, as far as others see them.

    Each Pod that is bound gets its phase, and its Node the lock removed, at once: no kubelet takes its time in between.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._mirror = Mirror(client, PODS, self._changed)
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: set[str] = set()

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._mirror.run()

    def _changed(self, _old: Object | None, pod: Object | None) -> None:
        if pod is None or not pod["spec"].get("nodeName") or pod["metadata"]["uid"] in self._seen:
            return
        self._seen.add(pod["metadata"]["uid"])
        task = asyncio.create_task(self._allocate(pod["metadata"]["name"], pod["spec"]["nodeName"]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _allocate(self, pod: str, node: str) -> None:
        phase = {"metadata": {"annotations": {keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS}}}
        await self._client.patch(f"{PODS}/{pod}", phase)
        await self._client.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {keys.NODE_LOCK: None}}})
