"""
What Pods of other schedulers hold on our Nodes is never granted again.

HAMi's scheduler writes what it grants onto the Pod before it binds it; its device plugin rewrites parts of it later.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/scheduler.go (`Filter`, `Bind`)
"""

import asyncio
import copy

from hamicommon.model import Object
from hamicommon.wire import keys
from testbed.waiting import eventually

from ..support.builders import a_container, a_pod, promise_of
from ..support.service import Running

THEIRS = "GPU-a,NVIDIA,8000,30:;"
ALLOCATED = "hami.io/vgpu-devices-allocated"
TO_ALLOCATE = "hami.io/vgpu-devices-to-allocate"


def promised(scheduler: Running, node: str = "exact", uuid: str = "GPU-a") -> tuple[int, int, int]:
    """Return replicas, MiB and percent promised of a device."""
    found = promise_of(scheduler.cluster.ledger, node, uuid)
    return found.replicas, found.memory_mib, found.core_percent


def changed(pod: Object, annotations: dict[str, str], *, node: str = "", phase: str = "") -> Object:
    """Return *pod* as another scheduler, a device plugin or a kubelet makes it."""
    found = copy.deepcopy(pod)
    found["metadata"]["annotations"] |= annotations
    if node:
        found["spec"]["nodeName"] = node
    if phase:
        found["status"]["phase"] = phase
    return found


async def test_their_pod_counts_from_its_bind_to_its_end_whatever_its_device_plugin_rewrites(
    scheduler: Running,
) -> None:
    """Annotations alone promise nothing; what is granted beside it is what it leaves, to the last MiB."""
    api = scheduler.api
    granted = {ALLOCATED: THEIRS, TO_ALLOCATE: THEIRS, keys.POD_NODE: "exact"}
    theirs = api.put("pods", a_pod("theirs", a_container(gpu=1, gpumem=8000, gpucores=30), annotations=granted))
    large, fitting = (a_pod(f"asks-{mib}", a_container(gpu=1, gpumem=mib)) for mib in (8385, 8384))
    api.put("pods", a_pod("told-later", node="locked", allocated="GPU-l,NVIDIA,1,0:;"))
    await eventually(lambda: promised(scheduler, "locked", "GPU-l") == (1, 1, 0))
    assert (0, 0, 0) == promised(scheduler)

    theirs = api.put("pods", changed(theirs, {keys.BIND_PHASE: "allocating"}, node="exact"))
    await eventually(lambda: promised(scheduler) == (1, 8000, 30))
    assert {"exact": "1/1 CardInsufficientMemory"} == (await scheduler.filter(large, "exact"))["FailedNodes"]
    theirs = api.put("pods", changed(theirs, {TO_ALLOCATE: ";", keys.BIND_PHASE: "success"}, phase="Running"))
    assert ["exact"] == (await scheduler.filter(fitting, "exact"))["NodeNames"]
    assert (2, 16384, 30) == promised(scheduler)

    api.put("pods", changed(theirs, {}, phase="Succeeded"))
    await eventually(lambda: promised(scheduler) == (1, 8384, 0))


async def test_pod_that_both_chose_for_is_where_who_bound_it_says(scheduler: Running) -> None:
    """Our Binding comes second: it is refused, and what the Pod holds is what theirs says, where theirs says."""
    api, pod = scheduler.api, scheduler.api.pod("p")
    assert ["exact"] == (await scheduler.filter(pod, "exact"))["NodeNames"]
    api.is_silent = True
    theirs = changed(pod, {ALLOCATED: "GPU-l,NVIDIA,1000,0:;"}, node="locked")
    api.put("pods", theirs)

    assert "already assigned to node" in await scheduler.bind(pod, "exact")

    assert (0, 0, 0) == promised(scheduler)
    api.is_silent = False
    api.put("pods", theirs)
    await eventually(lambda: promised(scheduler, "locked", "GPU-l") == (1, 1000, 0))
    assert "is bound to node locked already" in (await scheduler.filter(pod, "exact"))["Error"]


async def test_room_that_was_taken_while_we_waited_for_the_lock_is_not_granted(scheduler: Running) -> None:
    """Theirs held the Node's lock to bind a Pod to the device that we had chosen: it is seen before ours is written."""
    api = scheduler.api
    theirs = api.put("pods", a_pod("theirs", a_container(gpu=1, gpumem=10000)))
    ours = api.put("pods", a_pod("ours", a_container(gpu=1, gpumem=10000)))
    node = api.objects["nodes"]["locked"]
    node["metadata"]["annotations"][keys.NODE_LOCK] = "2099-01-01T00:00:00Z,default,theirs"
    node = api.put("nodes", node)
    await scheduler.filter(ours, "locked")
    binding = asyncio.create_task(scheduler.bind(ours, "locked"))
    await asyncio.sleep(0.1)
    api.put("pods", changed(theirs, {ALLOCATED: "GPU-l,NVIDIA,10000,0:;"}, node="locked"))
    await eventually(lambda: promised(scheduler, "locked", "GPU-l")[0] == 2)
    del node["metadata"]["annotations"][keys.NODE_LOCK]
    api.put("nodes", node)

    assert "device GPU-l is short of 0 replicas, 3616 MiB" in await binding

    assert [] == api.writes_to("/binding")
    assert (1, 10000, 0) == promised(scheduler, "locked", "GPU-l")
    assert keys.NODE_LOCK not in api.objects["nodes"]["locked"]["metadata"]["annotations"]


async def test_no_lock_is_taken_for_room_that_is_known_to_be_gone(scheduler: Running) -> None:
    """Nobody is to wait for a Pod that cannot be bound."""
    api = scheduler.api
    ours = api.put("pods", a_pod("ours", a_container(gpu=1, gpumem=10000)))
    await scheduler.filter(ours, "locked")
    api.put("pods", a_pod("theirs", node="locked", allocated="GPU-l,NVIDIA,10000,0:;"))
    await eventually(lambda: promised(scheduler, "locked", "GPU-l")[0] == 2)

    assert "device GPU-l is short of" in await scheduler.bind(ours, "locked")

    assert [] == api.writes
