"""
A refused Pod that fits now is woken, even if kube-scheduler does not ask.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hami_scheduler.bind.locking import NodeLocks
from hami_scheduler.errors import ApiRefusedError, ApiUnknownError
from hami_scheduler.search.cache import Memo
from hami_scheduler.serve import wakeups
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.filter import filter_pod
from hami_scheduler.state.cluster import Cluster

from ..support.builders import NOW, a_cluster, a_container, a_device, a_grant, a_node, a_pod, a_request, a_share

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

    def queue_event(self, *_args: Any, **_kinds: Any) -> None:
        """Take no notice."""


def a_full_cluster() -> Cluster:
    """Return one node whose only device is promised whole to `resident`."""
    cluster = a_cluster(a_node("n1", a_device(memory_mib=10000)))
    cluster.reserve(a_grant("resident", "n1", a_share(memory_mib=10000)), 0.0)
    return cluster


def a_context(cluster: Cluster, api: Woken) -> Context:
    """Return a context that is always ready."""
    found: Any = api
    locks = NodeLocks(found, lambda: NOW, timedelta(minutes=5))
    return Context(cluster, found, locks, CLOCK, Settings(), lambda: None)


async def refused(context: Context, *names: str) -> None:
    """Ask for 6000 MiB for each Pod and be refused."""
    for name in names:
        pod = a_pod(name, a_container(gpu=1, gpumem=6000))
        answer = await filter_pod(context, pod, ["n1"], None)
        assert not answer.node_names


async def test_pod_is_woken_when_it_fits_and_kube_scheduler_does_not_ask() -> None:
    """A reservation that ran out is no event for kube-scheduler."""
    cluster, api = a_full_cluster(), Woken()
    context = a_context(cluster, api)
    await refused(context, "p")

    cluster.unreserve("resident")

    assert "default/p" == await context.wake_one()
    assert ["p"] == api.names


async def test_every_waiting_pod_is_woken_once_when_decisions_are_made_on_something_else() -> None:
    """What a new device config makes of them, nobody knows before they are asked about again."""
    api = Woken()
    context = a_context(a_full_cluster(), api)
    await refused(context, "p", "q")

    context.use(a_full_cluster())
    woken = [await context.wake_one() for _ in range(3)]

    assert ["default/p", "default/q", None] == woken


async def test_no_pod_is_woken_while_nothing_changed() -> None:
    """Waiting costs no writes."""
    api = Woken()
    context = a_context(a_full_cluster(), api)
    await refused(context, "p")

    assert await context.wake_one() is None
    assert [] == api.names


async def test_change_that_makes_no_room_wakes_no_pod() -> None:
    """A look is not a write."""
    cluster, api = a_full_cluster(), Woken()
    context = a_context(cluster, api)
    await refused(context, "p")

    cluster.reserve(a_grant("resident", "n1", a_share(memory_mib=9000)), 0.0)

    assert await context.wake_one() is None
    assert [] == api.names


async def test_pod_is_woken_once_for_one_change() -> None:
    """kube-scheduler has been told; what it does with it is its own."""
    cluster, api = a_full_cluster(), Woken()
    context = a_context(cluster, api)
    await refused(context, "p")
    cluster.unreserve("resident")

    await context.wake_one()
    await context.wake_one()

    assert ["p"] == api.names


async def test_pod_that_has_a_node_is_not_woken() -> None:
    """kube-scheduler asked by itself, as it nearly always does."""
    cluster, api = a_full_cluster(), Woken()
    context = a_context(cluster, api)
    await refused(context, "p")
    cluster.unreserve("resident")
    await filter_pod(context, a_pod("p", a_container(gpu=1, gpumem=6000)), ["n1"], None)

    assert await context.wake_one() is None


async def test_pod_is_looked_at_again_after_the_api_server_was_away() -> None:
    """An answer that did not come wakes nobody, so it does not count."""
    cluster, api = a_full_cluster(), Woken(ApiUnknownError("no answer"))
    context = a_context(cluster, api)
    await refused(context, "p")
    cluster.unreserve("resident")
    await context.wake_one()
    api.answer = None

    assert "default/p" == await context.wake_one()


async def test_pod_refused_again_while_it_is_woken_is_still_remembered() -> None:
    """kube-scheduler may ask before the API server has answered, and another Pod may have the devices by then."""
    cluster = a_full_cluster()

    class AsksAtOnce(Woken):
        async def wake_pod(self, uid: str, namespace: str, name: str) -> None:
            await super().wake_pod(uid, namespace, name)
            cluster.reserve(a_grant("faster", "n1", a_share(memory_mib=10000)), 0.0)
            await refused(context, name)
            cluster.unreserve("faster")

    context = a_context(cluster, AsksAtOnce())
    await refused(context, "p")
    cluster.unreserve("resident")
    assert "default/p" == await context.wake_one()

    assert "default/p" == await context.wake_one()


async def test_pod_that_is_gone_is_forgotten() -> None:
    """A refusal to patch means that nobody waits."""
    cluster, api = a_full_cluster(), Woken(ApiRefusedError("not found"))
    context = a_context(cluster, api)
    await refused(context, "p")
    cluster.unreserve("resident")
    await context.wake_one()
    api.answer = None
    cluster.reserve(a_grant("other", "n1", a_share(memory_mib=1)), 0.0)

    assert await context.wake_one() is None


async def test_quota_that_grows_wakes_its_pod() -> None:
    """kube-scheduler does not watch ResourceQuotas."""
    cluster, api = a_cluster(a_node("n1", a_device(memory_mib=10000))), Woken()
    quota = {"metadata": {"namespace": "default", "name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "5000"}}}
    cluster.quotas.put(quota)
    context = a_context(cluster, api)
    await refused(context, "p")

    cluster.quotas.drop(quota)

    assert "default/p" == await context.wake_one()


async def test_more_waiting_pods_than_one_look_takes_are_all_found_in_turn() -> None:
    """Nobody waits behind those that still do not fit."""
    cluster, api = a_full_cluster(), Woken()
    context = a_context(cluster, api)
    for number in range(20):
        await filter_pod(context, a_pod(f"huge{number}", a_container(gpu=1, gpumem=99000)), ["n1"], None)
    await refused(context, "small")
    cluster.unreserve("resident")

    woken = [await context.wake_one() for _ in range(4)]

    assert "default/small" in woken


async def test_waiting_forgets_the_oldest_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that never run do not fill the memory; a forgotten Pod is not woken."""
    monkeypatch.setattr(wakeups, "_PODS_REMEMBERED", 1)
    cluster = a_cluster(a_node("n1", a_device()))
    pods, api = wakeups.Wakeups(), Woken()
    for uid in ("first", "second"):
        pods.refused(replace(a_request(a_pod(uid, a_container(gpu=1))), uid=uid), ["n1"], cluster.view)
    pods.retry_all()

    assert "default/second" == await pods.wake_one(cluster.view, Memo(), api)
    assert ["second"] == api.names
    assert await pods.wake_one(cluster.view, Memo(), api) is None


async def test_many_pods_that_wait_are_all_remembered_when_a_reservation_ends() -> None:
    """kube-scheduler would ask about them only minutes later."""
    cluster, api = a_full_cluster(), Woken()
    context = a_context(cluster, api)
    await refused(context, "first")
    for number in range(300):
        await filter_pod(context, a_pod(f"huge{number}", a_container(gpu=1, gpumem=99000)), ["n1"], None)
    cluster.unreserve("resident")

    assert "default/first" in [await context.wake_one() for _ in range(2)]


async def test_lists_of_candidates_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods with the same candidates share a list; the Pods of a list that is forgotten are forgotten with it."""
    monkeypatch.setattr(wakeups, "_LISTS_REMEMBERED", 2)
    cluster = a_cluster(a_node("n1", a_device()))
    pods = wakeups.Wakeups()
    for number, names in enumerate((["n1"], ["n1"], ["n1", "n2"], ["n2"])):
        uid = f"p{number}"
        pods.refused(replace(a_request(a_pod(uid, a_container(gpu=1))), uid=uid), names, cluster.view)

    assert [None, None, ["n1", "n2"], ["n2"]] == [pods.candidates(f"p{number}") for number in range(4)]
    pods.refused(replace(a_request(a_pod("p4", a_container(gpu=1))), uid="p4"), ["n2"], cluster.view)
    assert pods.candidates("p3") is pods.candidates("p4")


async def test_pods_that_may_not_be_woken_stand_in_nobodys_way() -> None:
    """Such as the members of a gang that ask for the same as others."""
    cluster, api = a_full_cluster(), Woken()
    pods = wakeups.Wakeups()
    for uid in (*(f"member{number}" for number in range(20)), "alone"):
        pods.refused(replace(a_request(a_pod(uid, a_container(gpu=1))), uid=uid), ["n1"], cluster.view)
    cluster.unreserve("resident")

    for _ in range(3):
        await pods.wake_one(cluster.view, Memo(), api, lambda uid: uid == "alone")
    assert ["alone"] == api.names


@pytest.mark.parametrize("is_replaced", [True, False], ids=["cluster replaced", "room"])
async def test_pod_that_cannot_be_woken_stands_in_nobodys_way(is_replaced: bool) -> None:
    """Such as one whose changes an admission webhook answers with an error. It is tried again after the others."""

    class Choosy(Woken):
        async def wake_pod(self, uid: str, namespace: str, name: str) -> None:
            """Fail for one Pod."""
            if name == "stuck":
                raise ApiUnknownError("500 Internal Server Error")
            await super().wake_pod(uid, namespace, name)

    cluster, api = a_full_cluster(), Choosy()
    context = a_context(cluster, api)
    await refused(context, "stuck", "like it")
    await filter_pod(context, a_pod("other", a_container(gpu=1, gpumem=5000)), ["n1"], None)
    if is_replaced:
        context.wakeups.retry_all()
    else:
        cluster.unreserve("resident")

    for _ in range(6):
        await context.wake_one()
    assert ["like it", "other"] == sorted(api.names)


async def test_pod_of_a_replaced_cluster_is_woken_though_one_like_it_was_refused_since() -> None:
    """Its request may be another one by now, so its kind says nothing."""
    cluster, api = a_full_cluster(), Woken()
    context = a_context(cluster, api)
    await refused(context, "first", "second")
    context.wakeups.retry_all()
    await refused(context, "first")

    assert "default/second" == await context.wake_one()
    assert await context.wake_one() is None
