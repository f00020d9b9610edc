"""
Members of a PodGroup on a Node that needs the lock, in virtual time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

from hami_scheduler.errors import BindError
from hami_scheduler.main import Service
from hami_scheduler.serve.bind import bind_pod
from hami_scheduler.serve.filter import filter_pod
from hamicommon.model import Object
from hamicommon.runtime.api.api_errors import Conflict
from hamicommon.wire import keys
from hamicommon.wire.node_lock import decode_node_lock
from testbed.virtual.api import MemoryApi

from .builders import a_container, a_device, a_node, a_pod, promise_of

POD_GROUP = "scheduling.x-k8s.io/pod-group"
SHARE_MIB = 1000
LONGEST_RETRY_SECONDS = 10.0


async def an_api(members: int, room: int | None = None) -> tuple[MemoryApi, list[Object]]:
    """Return an API server with one locked Node that has room for *room* of the gang's Pods, all by default."""
    api = MemoryApi()
    memory_mib = SHARE_MIB * (members if room is None else room)
    await api.put("nodes", a_node("n1", a_device(count=100, memory_mib=memory_mib)))
    return api, [await a_member(api, f"m{number}") for number in range(members)]


async def a_member(api: MemoryApi, name: str, gang: str = "training") -> Object:
    """Return a new Pod of *gang*."""
    pod = a_pod(name, a_container(gpu=1, gpumem=SHARE_MIB))
    pod["metadata"]["labels"] = {POD_GROUP: gang}
    return await api.put("pods", pod)


async def chosen(service: Service, pod: Object) -> bool:
    """Return whether a filter names the Node; kube-scheduler sends the Pod as it is."""
    api: Any = service.api._kube
    current = api.objects["pods"].get(f"default/{pod['metadata']['name']}", pod)
    return bool((await filter_pod(service.context, current, ["n1"], None)).node_names)


async def bind(service: Service, pod: Object) -> None:
    """Bind to the Node."""
    metadata = pod["metadata"]
    await bind_pod(service.context, metadata["uid"], metadata["namespace"], metadata["name"], "n1")


async def bound_in_the_end(service: Service, pod: Object) -> int:
    """Bind *pod* as kube-scheduler does: again, and asked about again, after each refusal; return how often."""
    seconds = 1.0
    for refusals in range(100):
        if refusals == 0 or await chosen(service, pod):
            with suppress(BindError):
                await bind(service, pod)
                return refusals
        await asyncio.sleep(seconds)
        seconds = min(2 * seconds, LONGEST_RETRY_SECONDS)
    raise AssertionError(f"{pod['metadata']['name']} is never bound")


def lock_owner(api: MemoryApi) -> str:
    """Return the name of the Pod that holds the Node's lock, empty for none."""
    value = api.objects["nodes"]["n1"]["metadata"]["annotations"].get(keys.NODE_LOCK)
    return (decode_node_lock(value).pod or "") if value else ""


def is_bound(api: MemoryApi, name: str) -> bool:
    """Return whether a Pod has a Node."""
    return bool(api.objects["pods"][f"default/{name}"]["spec"].get("nodeName"))


@asynccontextmanager
async def a_device_plugin(api: MemoryApi, seconds: float) -> AsyncIterator[list[str]]:
    """
    Give the lock back *seconds* after its Pod was bound, as HAMi's does at the end of Allocate, until the block ends.

    Yield the names of the Pods it has served so far. HAMi's plugin allocates to the Pod that holds the lock.
    """
    served: list[str] = []

    async def serve() -> None:
        while True:
            await asyncio.sleep(0.1)
            owner = lock_owner(api)
            if owner and is_bound(api, owner):
                await asyncio.sleep(seconds)
                with suppress(Conflict):
                    await api.merge_patch("/api/v1/nodes/n1", {"metadata": {"annotations": {keys.NODE_LOCK: None}}})
                    served.append(owner)

    task = asyncio.create_task(serve())
    try:
        yield served
    finally:
        task.cancel()


def promised(service: Service) -> int:
    """Return the MiB promised of the device."""
    return int(promise_of(service.feed.cluster.ledger, "n1", "GPU-a").memory_mib)
