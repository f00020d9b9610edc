"""
Simulated Nodes and Pods, with slices and claims, which are only objects, and the clients that write them.

Owns the form of these objects. The codec of the contract encodes the inventory, as in a device plugin. Must never know
which scheduler runs.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any

from hamicommon.dra.names import CORES, DRA, DRIVER, MEMORY, node_kind
from hamicommon.dra.partitions import encode_pool
from hamicommon.dra.slices import Description, OfferedDevice
from hamicommon.model import Device, Object
from hamicommon.pod.moved import encode_moved
from hamicommon.wire import keys
from hamicommon.wire.node_devices import decode_node_devices, encode_node_devices
from harness.claims import a_template
from minicluster.client import Client, Mirror
from testbed.driver.hardware import FakeNode

COUNT = "nvidia.com/gpu"
NAMESPACE = "scale"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
DEVICE_MIB = 81559
REGISTER = "hami.io/node-nvidia-register"
REPLICAS = 10
"""The replicas of a device: `deviceSplitCount` of the chart."""
IN_FLIGHT = 32
"""The number of simultaneous requests while Pods are created."""


def a_node(name: str, device_count: int) -> Object:
    """Return a Node with the fields of its kubelet and its device plugin. It needs no node lock."""
    gpus = FakeNode.of(name, "NVIDIA H100 80GB HBM3", DEVICE_MIB, device_count).gpus
    devices = [
        Device(gpu.uuid, REPLICAS, gpu.memory_mib, 100, gpu.name, index, index // 4, "hami-core", finds_owners=True)
        for index, gpu in enumerate(gpus)
    ]
    annotations = {REGISTER: encode_node_devices(devices)}
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(REPLICAS * device_count)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "annotations": annotations, "labels": {"gpu": "on", "kubernetes.io/hostname": name}},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def a_dra_node(name: str, device_count: int, for_claims: Collection[int]) -> Object:
    """Return a Node of kind `dra`; of its devices only those *for_claims*, by number, are for ResourceClaims."""
    found = a_node(name, device_count)
    annotations, status = found["metadata"]["annotations"], found["status"]
    devices = [
        replace(device, healthy=number not in for_claims)
        for number, device in enumerate(decode_node_devices(annotations[REGISTER]))
    ]
    annotations |= {REGISTER: encode_node_devices(devices), keys.NODE_KIND: DRA}
    amounts = {key: value for key, value in status["capacity"].items() if not key.startswith("nvidia.com/")}
    found["status"] = {"capacity": amounts, "allocatable": amounts}
    return found


def slices_of(node: Object) -> tuple[Object, ...]:
    """
    Return the ResourceSlices of *node*, which the API server has: devices for claims, and tokens.

    A Node with a device plugin has none.
    """
    if node_kind(node) != DRA:
        return ()
    devices = list(enumerate(decode_node_devices(node["metadata"]["annotations"][REGISTER])))
    offered = [
        OfferedDevice(replace(device, healthy=True), Description(number, product_name=device.type))
        for number, device in devices
        if not device.healthy
    ]
    return encode_pool(node, offered, 1, sum(device.count for _, device in devices if device.healthy))


def a_share_template(name: str, memory_mib: int, core_percent: int) -> Object:
    """Return a ResourceClaimTemplate for a share of one device."""
    amounts = {MEMORY: f"{memory_mib}Mi", CORES: str(core_percent)}
    return a_template(name, deviceClassName=DRIVER, capacity={"requests": amounts})


def lock_needed(node: Object) -> Object:
    """Return a patch that makes *node* need the node lock."""
    devices = decode_node_devices(node["metadata"]["annotations"][REGISTER])
    text = encode_node_devices([replace(device, finds_owners=False) for device in devices])
    return {"metadata": {"annotations": {REGISTER: text}}}


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


def with_moved_limits(pod: Object) -> Object:
    """Return *pod* with its amounts in an annotation, as our webhook leaves it for Nodes with tokens."""
    [container] = pod["spec"]["containers"]
    limits = dict(container["resources"]["limits"])
    count = {COUNT: limits.pop(COUNT)}
    metadata = {**pod["metadata"], "annotations": {keys.DEVICE_AMOUNTS: encode_moved({container["name"]: limits})}}
    return {
        **pod,
        "metadata": metadata,
        "spec": {**pod["spec"], "containers": [{**container, "resources": {"limits": count}}]},
    }


async def all_of(requests: Iterable[Awaitable[Any]]) -> None:
    """Send *requests* in order, IN_FLIGHT at a time."""
    rest = iter(requests)

    async def worker() -> None:
        for request in rest:
            await request

    async with asyncio.TaskGroup() as group:
        for _ in range(IN_FLIGHT):
            group.create_task(worker())


async def give_locks_back(client: Client) -> None:
    """
    Write what device plugins write on Nodes without identity, for ever.

    Each bound Pod gets its phase, and its Node's lock is removed, without the delay of a kubelet.
    """

    async def allocate(pod: str, node: str) -> None:
        phase = {"metadata": {"annotations": {keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS}}}
        await client.patch(f"{PODS}/{pod}", phase)
        await client.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {keys.NODE_LOCK: None}}})

    await for_each_bound(client, allocate)


async def for_each_bound(client: Client, then: Callable[[str, str], Coroutine[None, None, None]]) -> None:
    """Call *then* with the names of Pod and Node for each bound Pod, for ever."""
    async with asyncio.TaskGroup() as group:

        def changed(old: Object | None, pod: Object | None) -> None:
            was_bound = old is not None and old["spec"].get("nodeName")
            if pod is not None and pod["spec"].get("nodeName") and not was_bound:
                group.create_task(then(pod["metadata"]["name"], pod["spec"]["nodeName"]))

        await Mirror(client, PODS, changed).run()
