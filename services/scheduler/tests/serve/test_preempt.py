"""
The verb preempt while the watch is behind kube-scheduler.
"""

import asyncio
from typing import Any

import pytest

from hami_scheduler.search.preempt import Victims
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.preempt import preempt_pods
from hami_scheduler.state.cluster import Cluster

from ..support.builders import NOW, a_cluster, a_container, a_device, a_grant, a_node, a_pod
from ..support.scripted_api import ScriptedApi

EVICTED = {"n1": Victims(("evicted",))}
ASKED = a_pod("asked", a_container(gpu=1, gpumem=16384))


async def judged(cluster: Cluster, *living: str) -> Any:
    """Return the answer for a Pod that wants the whole device, while the Pods *living* run on the Node."""
    api: Any = ScriptedApi()

    async def living_uids(node: str) -> set[str]:
        assert "n1" == node
        return set(living)

    api.living_uids = living_uids
    context = Context(cluster, api, None, Clock(lambda: NOW, lambda: 0.0), Settings(), lambda: None)  # type: ignore[arg-type]
    return await preempt_pods(context, ASKED, EVICTED)


def a_cluster_that_wrote(uid: str, *, is_certain: bool = True) -> Cluster:
    """Return a cluster whose watch has not shown yet that the Pod *uid* is bound."""
    cluster = a_cluster(a_node("n1", a_device()))
    cluster.reserve(a_grant(uid, "n1"), 0.0)
    cluster.begin_bind(uid, {})
    cluster.reservations.written(uid, is_certain=is_certain)
    return cluster


async def test_pod_that_ended_before_it_was_seen_bound_holds_nothing() -> None:
    """kube-scheduler asks only once because of its end, and our watch may be later than both events."""
    assert EVICTED == await judged(a_cluster_that_wrote("ended"))


async def test_pod_whose_end_the_watch_reports_while_the_call_is_judged_holds_nothing() -> None:
    """kube-scheduler has seen the same event and asks only once, so the answer must count it."""
    cluster = a_cluster_that_wrote("ended")
    asyncio.get_running_loop().call_soon(cluster.drop_pod, {"metadata": {"uid": "ended"}})

    assert EVICTED == await judged(cluster)


async def test_pod_that_runs_holds_its_devices() -> None:
    """Whether our watch has shown it or not."""
    assert {} == await judged(a_cluster_that_wrote("runs"), "runs")


@pytest.mark.parametrize("is_written", [False, True])
async def test_pod_whose_binding_is_not_certain_holds_its_devices(is_written: bool) -> None:
    """It may be bound later, so the Node's Pods say nothing of it."""
    cluster = a_cluster_that_wrote("late", is_certain=False)
    if not is_written:
        cluster.reserve(a_grant("late", "n1"), 0.0)

    assert {} == await judged(cluster)
