"""The lock of a Node over the scheduler's sockets: taken for a bind, waited for, given back, taken over."""

import asyncio
from dataclasses import replace
from pathlib import Path

from hami_scheduler.bind.node_lock import Lock
from testbed.waiting import eventually

from ..support.api_server import ApiServer
from ..support.builders import a_pod, promise_of
from ..support.service import Running, running


async def test_node_that_needs_a_lock_is_locked_and_the_pod_labelled(scheduler: Running) -> None:
    """The lock is HAMi's, it is taken before the Binding, and it stays for the device plugin to release."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")
    assert "" == await scheduler.bind(pod, "locked")

    lock = scheduler.api.objects["nodes"]["locked"]["metadata"]["annotations"]["hami.io/mutex.lock"]
    assert lock.endswith("Z,default,p")
    assert ["PATCH", "POST", "PATCH"] == [method for method, _, _ in scheduler.api.writes]
    assert {"hami.io/vgpu-node": "locked"} == scheduler.api.pod("p")["metadata"]["labels"]


async def test_bind_waits_for_the_lock_and_takes_it_when_it_is_free(scheduler: Running) -> None:
    """Pods that come at once to one Node are bound one after the other, as fast as the device plugin releases."""
    pods = [scheduler.api.put("pods", a_pod(f"p{i}")) for i in range(5)]
    for pod in pods:
        await scheduler.filter(pod, "locked")

    async def device_plugin() -> None:
        node = scheduler.api.objects["nodes"]["locked"]
        while True:
            await asyncio.sleep(0.01)
            node = scheduler.api.objects["nodes"]["locked"]
            owner = node["metadata"]["annotations"].get("hami.io/mutex.lock", ",,").split(",")[2]
            if owner and scheduler.api.pod(owner)["spec"].get("nodeName"):
                del node["metadata"]["annotations"]["hami.io/mutex.lock"]
                scheduler.api.put("nodes", node)

    plugin = asyncio.create_task(device_plugin())
    errors = await asyncio.gather(*(scheduler.bind(pod, "locked") for pod in pods))
    plugin.cancel()

    assert [""] * 5 == errors


async def test_lock_of_another_pod_fails_the_bind_after_the_wait(scheduler: Running) -> None:
    """The room is given back, and the Event says who holds the Node."""
    scheduler.service.context.settings = replace(scheduler.service.context.settings, lock_wait_seconds=0.5)
    scheduler.api.put("pods", a_pod("other"))
    node = scheduler.api.objects["nodes"]["locked"]
    node["metadata"]["annotations"]["hami.io/mutex.lock"] = "2099-01-01T00:00:00Z,default,other"
    scheduler.api.put("nodes", node)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")

    assert "node lock contention" in await scheduler.bind(pod, "locked")
    assert 0 == promise_of(scheduler.cluster.ledger, "locked", "GPU-l").replicas
    await eventually(lambda: scheduler.api.events)
    assert "BindingFailed" == scheduler.api.events[0]["reason"]


async def test_lock_whose_owner_is_gone_is_taken(scheduler: Running) -> None:
    """Its Pod was deleted before the device plugin saw it."""
    node = scheduler.api.objects["nodes"]["locked"]
    node["metadata"]["annotations"]["hami.io/mutex.lock"] = "2099-01-01T00:00:00Z,default,gone"
    scheduler.api.put("nodes", node)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")

    assert "" == await scheduler.bind(pod, "locked")


async def test_lock_is_given_back_when_the_binding_is_refused(scheduler: Running) -> None:
    """Nobody waits for a Pod that was not bound."""
    scheduler.api.fail("/binding", 403)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")

    assert "403" in await scheduler.bind(pod, "locked")
    assert "hami.io/mutex.lock" not in scheduler.api.objects["nodes"]["locked"]["metadata"]["annotations"]
    assert 0 == promise_of(scheduler.cluster.ledger, "locked", "GPU-l").replicas


async def test_lock_is_taken_again_when_the_node_changed_meanwhile(scheduler: Running) -> None:
    """A conflict means looking again, not failing."""
    scheduler.api.fail("/nodes/locked", "none", 409)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")

    assert "" == await scheduler.bind(pod, "locked")


async def test_lock_that_cannot_be_asked_for_gives_the_room_back(scheduler: Running) -> None:
    """Without the lock nothing was written, so nothing is held."""
    scheduler.api.fail("/nodes/locked", 500)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")

    assert "500" in await scheduler.bind(pod, "locked")
    assert 0 == promise_of(scheduler.cluster.ledger, "locked", "GPU-l").replicas


async def test_bind_without_patience_fails_at_once(api: ApiServer, tmp_path: Path) -> None:
    """With a wait of 0 a held lock is told immediately, as HAMi tells it."""
    api.put("pods", a_pod("other"))
    node = api.objects["nodes"]["locked"]
    node["metadata"]["annotations"]["hami.io/mutex.lock"] = "2099-01-01T00:00:00Z,default,other"
    api.put("nodes", node)
    async with running(api, tmp_path, lock_wait_seconds=0.0) as scheduler:
        await scheduler.filter(api.pod("p"), "locked")

        error = await scheduler.bind(api.pod("p"), "locked")
        assert "node locked: the lock is held since 2099-01-01T00:00:00Z: node lock contention" == error


async def test_lock_that_cannot_be_given_back_expires(scheduler: Running) -> None:
    """The bind's own error is told, not the lock's."""
    scheduler.api.fail("/binding", 403)
    scheduler.api.fail("/nodes/locked", "none", "none", 403)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")

    assert "/binding: 403" in await scheduler.bind(pod, "locked")


async def test_lock_is_released_in_spite_of_a_conflict(scheduler: Running) -> None:
    """The Node changes all the time; a conflict means looking again."""
    scheduler.api.fail("/binding", 403)
    scheduler.api.fail("/nodes/locked", "none", "none", "none", 409)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")
    await scheduler.bind(pod, "locked")

    assert "hami.io/mutex.lock" not in scheduler.api.objects["nodes"]["locked"]["metadata"]["annotations"]


async def test_lock_taken_over_meanwhile_is_left_alone(scheduler: Running) -> None:
    """Only the owner releases."""
    node = scheduler.api.objects["nodes"]["locked"]
    node["metadata"]["annotations"]["hami.io/mutex.lock"] = "2099-01-01T00:00:00Z,default,other"
    scheduler.api.put("nodes", node)

    await scheduler.service.context.locks.release("locked", Lock("hami.io/mutex.lock"), "default", "p")

    assert [] == scheduler.api.writes
