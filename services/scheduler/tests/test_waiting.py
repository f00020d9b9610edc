"""
A refused Pod for which room appears is found even when kube-scheduler does not ask.
"""

from dataclasses import replace
from typing import Any

import pytest

from hami_scheduler.decide.memo import Memo
from hami_scheduler.serve import wakeups
from hami_scheduler.serve.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.serve.extender import Clock, Extender, Settings
from hami_scheduler.state.cluster import Cluster

from .builders import NOW, a_cluster, a_container, a_device, a_grant, a_node, a_pod, a_request, a_share

CLOCK = Clock(lambda: NOW, lambda: 0.0)


class Woken:
    """The API server as far as waking goes: who was woken, and what to answer."""

    def __init__(self, answer: Exception | None = None) -> None:
        self.answer = answer
        self.names: list[str] = []

    async def wake_pod(self, _uid: str, _namespace: str, name: str) -> None:
        """Take the name, or fail."""
        if self.answer is not None:
            raise self.answer
        self.names.append(name)

    def tell(self, *_args: Any, **_kinds: Any) -> None:
        """Take no notice."""


def a_full_cluster() -> Cluster:
    """Return one node whose only device is promised whole to `resident`."""
    cluster = a_cluster(a_node("n1", a_device(memory_mib=10000)))
    cluster.reserve(a_grant("resident", "n1", a_share(memory_mib=10000)), 0.0)
    return cluster


def an_extender(cluster: Cluster, api: Woken) -> Extender:
    """Return an extender that is always ready."""
    locks: Any = None
    found: Any = api
    return Extender(cluster, found, locks, CLOCK, Settings(), lambda: None)


async def refused(extender: Extender, *names: str) -> None:
    """Ask for 6000 MiB for each Pod and be refused."""
    for name in names:
        pod = a_pod(name, a_container(gpu=1, gpumem=6000))
        answer = await extender.filter(pod, ["n1"], None)
        assert not answer.node_names


async def test_pod_is_woken_when_room_appears_and_nobody_asks() -> None:
    """A reservation that ran out is no event for kube-scheduler."""
    cluster, api = a_full_cluster(), Woken()
    extender = an_extender(cluster, api)
    await refused(extender, "p")

    cluster.unreserve("resident")

    assert "default/p" == await extender.wake_overlooked()
    assert ["p"] == api.names


async def test_every_waiting_pod_is_woken_once_when_decisions_are_made_on_something_else() -> None:
    """What a new device config makes of them, nobody knows before they are asked about again."""
    api = Woken()
    extender = an_extender(a_full_cluster(), api)
    await refused(extender, "p", "q")

    extender.use(a_full_cluster())
    woken = [await extender.wake_overlooked() for _ in range(3)]

    assert ["default/p", "default/q", None] == woken


async def test_nobody_is_woken_while_nothing_changed() -> None:
    """Waiting costs no writes."""
    api = Woken()
    extender = an_extender(a_full_cluster(), api)
    await refused(extender, "p")

    assert await extender.wake_overlooked() is None
    assert [] == api.names


async def test_change_that_makes_no_room_wakes_nobody() -> None:
    """A look is not a write."""
    cluster, api = a_full_cluster(), Woken()
    extender = an_extender(cluster, api)
    await refused(extender, "p")

    cluster.reserve(a_grant("resident", "n1", a_share(memory_mib=9000)), 0.0)

    assert await extender.wake_overlooked() is None
    assert [] == api.names


async def test_pod_is_woken_once_for_one_change() -> None:
    """kube-scheduler has been told; what it does with it is its own."""
    cluster, api = a_full_cluster(), Woken()
    extender = an_extender(cluster, api)
    await refused(extender, "p")
    cluster.unreserve("resident")

    await extender.wake_overlooked()
    await extender.wake_overlooked()

    assert ["p"] == api.names


async def test_pod_that_has_a_node_is_not_woken() -> None:
    """kube-scheduler asked by itself, as it nearly always does."""
    cluster, api = a_full_cluster(), Woken()
    extender = an_extender(cluster, api)
    await refused(extender, "p")
    cluster.unreserve("resident")
    await extender.filter(a_pod("p", a_container(gpu=1, gpumem=6000)), ["n1"], None)

    assert await extender.wake_overlooked() is None


async def test_pod_is_looked_at_again_after_the_api_server_was_away() -> None:
    """An answer that did not come wakes nobody, so it does not count."""
    cluster, api = a_full_cluster(), Woken(ApiUnknownError("no answer"))
    extender = an_extender(cluster, api)
    await refused(extender, "p")
    cluster.unreserve("resident")
    await extender.wake_overlooked()
    api.answer = None

    assert "default/p" == await extender.wake_overlooked()


async def test_pod_that_is_gone_is_forgotten() -> None:
    """A refusal to patch means that nobody waits."""
    cluster, api = a_full_cluster(), Woken(ApiRefusedError("not found"))
    extender = an_extender(cluster, api)
    await refused(extender, "p")
    cluster.unreserve("resident")
    await extender.wake_overlooked()
    api.answer = None
    cluster.reserve(a_grant("other", "n1", a_share(memory_mib=1)), 0.0)

    assert await extender.wake_overlooked() is None


async def test_quota_that_grows_wakes_its_pod() -> None:
    """kube-scheduler does not watch ResourceQuotas."""
    cluster, api = a_cluster(a_node("n1", a_device(memory_mib=10000))), Woken()
    quota = {"metadata": {"namespace": "default", "name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "5000"}}}
    cluster.quotas.put(quota)
    extender = an_extender(cluster, api)
    await refused(extender, "p")

    cluster.quotas.drop(quota)

    assert "default/p" == await extender.wake_overlooked()


async def test_more_waiting_pods_than_one_look_takes_are_all_found_in_turn() -> None:
    """Nobody waits behind those that still do not fit."""
    cluster, api = a_full_cluster(), Woken()
    extender = an_extender(cluster, api)
    for number in range(20):
        await extender.filter(a_pod(f"huge{number}", a_container(gpu=1, gpumem=99000)), ["n1"], None)
    await refused(extender, "small")
    cluster.unreserve("resident")

    woken = [await extender.wake_overlooked() for _ in range(4)]

    assert "default/small" in woken


def test_waiting_forgets_the_oldest_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that never run do not fill the memory, and one that was forgotten is nobody's business."""
    monkeypatch.setattr(wakeups, "_PODS_REMEMBERED", 1)
    cluster = a_cluster(a_node("n1", a_device()))
    pods = wakeups.Waiting()
    for uid in ("first", "second"):
        pods.refused(replace(a_request(a_pod(uid, a_container(gpu=1))), uid=uid), ["n1"], cluster.view)
    pods.look_again("first")
    pods.look_again("second")

    found = pods.overlooked(cluster.view, Memo())
    assert found is not None
    assert "second" == found.uid
