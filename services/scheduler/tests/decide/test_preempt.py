"""
Which Pods must leave a Node, and the answer to kube-scheduler.
"""

from typing import Any

import pytest

from hami_scheduler.decide.filter import filter_nodes
from hami_scheduler.decide.preempt import must_leave
from hami_scheduler.decide.prioritize import priorities
from hami_scheduler.state.cluster import Cluster
from testbed.waiting import eventually

from ..support.builders import Object, a_cluster, a_container, a_device, a_node, a_pod, a_request
from ..support.service import Running, running


def a_resident(name: str, share: str, priority: int = 0, **fields: Any) -> Object:
    """Return a Pod on n1 that holds *share* of GPU-a or GPU-b."""
    uuid, memory_mib = share.split(":")
    pod = a_pod(name, a_container(gpu=1), node="n1", allocated=f"{uuid},NVIDIA,{memory_mib},0:;", **fields)
    pod["spec"]["priority"] = priority
    return pod


def a_busy_cluster(*residents: Object) -> Cluster:
    """Return one Node with two devices of 10000 MiB and *residents* on them."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a", memory_mib=10000), a_device("GPU-b", memory_mib=10000)))
    for pod in residents:
        cluster.put_pod(pod)
    return cluster


def leaving(cluster: Cluster, *named: str, memory_mib: int = 8000, priority: int = 10) -> Any:
    """Return who leaves n1 for a Pod of *priority* that asks *memory_mib*."""
    request = a_request(a_pod("high", a_container(gpu=1, gpumem=memory_mib)))
    return must_leave(request, priority, "n1", named, cluster.view)


def test_whom_kube_scheduler_named_is_enough() -> None:
    """A Node where the Pod gets its devices then stays as it was named."""
    cluster = a_busy_cluster(a_resident("x", "GPU-a:9000"), a_resident("y", "GPU-b:9000"))

    assert ("uid-x",) == leaving(cluster, "uid-x")
    assert ("of-another-kind", "uid-x") == leaving(cluster, "of-another-kind", "uid-x")


def test_node_without_room_even_then_is_of_no_use() -> None:
    """Nobody is evicted in vain: its residents are of the same priority, or the device is too small."""
    cluster = a_busy_cluster(a_resident("x", "GPU-a:9000", 10), a_resident("y", "GPU-b:9000", 11))

    assert None is leaving(cluster, "of-another-kind")
    assert None is leaving(a_busy_cluster(), "of-another-kind", memory_mib=10001)


def test_node_that_offers_nothing_is_of_no_use() -> None:
    """It is not known."""
    assert None is must_leave(a_request(), 10, "n2", ("uid-x",), a_busy_cluster().view)


def test_fewest_and_lowest_are_added() -> None:
    """The device of the lower one is freed; who has a place beside the Pod stays."""
    low, middle = a_resident("low", "GPU-a:9000", 1), a_resident("middle", "GPU-b:9000", 5)
    small = a_resident("small", "GPU-a:1000", 0)

    assert ("named", "uid-low") == leaving(a_busy_cluster(low, middle, small), "named")


def test_reserved_pods_are_left_alone() -> None:
    """Their priority is not known, and kube-scheduler may not find them on the Node yet."""
    cluster = a_busy_cluster(a_resident("x", "GPU-a:9000"), a_resident("y", "GPU-b:9000"))
    request = a_request(a_pod("high", a_container(gpu=1, gpumem=8000)))

    assert ("z", "uid-x") == must_leave(request, 10, "n1", ("z",), cluster.view, {"uid-y"})


def test_quota_that_leaving_pods_held_is_free_again() -> None:
    """Of the Pod's own namespace; what others hold is not its to take."""
    quota = {"metadata": {"namespace": "default", "name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "9000"}}}
    own, other = a_resident("x", "GPU-a:9000"), a_resident("y", "GPU-b:9000", namespace="team")
    cluster = a_busy_cluster(own, other)
    cluster.quotas.put(quota)

    assert ("uid-x",) == leaving(cluster, "uid-x")
    assert ("uid-y", "uid-x") == leaving(cluster, "uid-y"), "room alone would do, but not within the quota"


@pytest.mark.parametrize(("policy", "best"), [("binpack", "full"), ("spread", "idle")])
def test_priorities_follow_the_node_policy(policy: str, best: str) -> None:
    """The best gets 10, the worst 0, what offers nothing 0."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}")) for name in ("idle", "half", "full")))
    for name, memory_mib in (("half", 4000), ("full", 8000)):
        cluster.put_pod(a_pod(name, node=name, allocated=f"GPU-{name},NVIDIA,{memory_mib},0:;"))
    request = a_request(node=policy)

    found = priorities(request, ["idle", "half", "full", "ghost"], cluster.view)

    assert (10, 0) == (found[best], found["ghost"])
    assert 0 < found["half"] < 10
    assert best == filter_nodes(request, ["idle", "half", "full"], cluster.view).node


def test_equal_nodes_have_equal_priorities() -> None:
    """There is nothing to tell them by."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}")) for name in ("n1", "n2")))

    assert {"n1": 0, "n2": 0} == priorities(a_request(), ["n1", "n2"], cluster.view)


async def test_kube_scheduler_asks_by_uid_or_with_whole_pods(scheduler: Running) -> None:
    """`nodeCacheCapable` decides which; the answer is by UID, with the count of violated budgets as it came."""
    resident = a_pod("resident", node="exact", allocated="GPU-a,NVIDIA,16000,0:;")
    scheduler.api.put("pods", resident)
    await eventually(lambda: scheduler.cluster.ledger.grant("uid-resident"))
    pod = a_pod("high")
    pod["spec"]["priority"] = 5
    meta = {"Pods": [{"UID": "cpu"}], "NumPDBViolations": 2}
    whole = {"Pods": [{"metadata": {"uid": "uid-resident"}}], "NumPDBViolations": 0}

    named = {"NodeNameToMetaVictims": {"exact": meta, "ghost": meta}}
    answer = await scheduler.post("/preempt", {"Pod": pod, "NodeNameToVictims": None, **named})
    assert {"exact": {"Pods": [{"UID": "cpu"}, {"UID": "uid-resident"}], "NumPDBViolations": 2}} == answer[
        "NodeNameToMetaVictims"
    ]
    answer = await scheduler.post("/preempt", {"Pod": pod, "NodeNameToVictims": {"exact": whole}})
    assert {"exact": {"Pods": [{"UID": "uid-resident"}], "NumPDBViolations": 0}} == answer["NodeNameToMetaVictims"]
    plain = a_pod("plain", a_container())
    answer = await scheduler.post("/preempt", {"Pod": plain, **named})
    assert {"exact", "ghost"} == set(answer["NodeNameToMetaVictims"])


async def test_end_that_the_watch_has_not_brought_counts(scheduler: Running) -> None:
    """kube-scheduler asks because a Pod ended, and would not ask again for minutes."""
    for name in ("ended", "resident"):
        scheduler.api.put("pods", a_pod(name, node="exact", allocated="GPU-a,NVIDIA,8000,0:;"))
        await eventually(lambda: scheduler.cluster.ledger.grant(f"uid-{name}"))  # noqa: B023
    question = {"Pod": a_pod("p"), "NodeNameToMetaVictims": {"exact": {"Pods": [{"UID": "cpu"}]}}}
    assert {} == (await scheduler.post("/preempt", question))["NodeNameToMetaVictims"]

    scheduler.api.is_silent = True
    scheduler.api.remove("pods", "default/ended")

    assert {"exact"} == set((await scheduler.post("/preempt", question))["NodeNameToMetaVictims"])


async def test_preemption_is_judged_while_pods_cannot_be_read(scheduler: Running) -> None:
    """By what the watch has brought."""
    scheduler.api.put("pods", a_pod("resident", node="exact", allocated="GPU-a,NVIDIA,16000,0:;"))
    await eventually(lambda: scheduler.cluster.ledger.grant("uid-resident"))
    question = {"Pod": a_pod("p"), "NodeNameToMetaVictims": {"exact": {"Pods": [{"UID": "cpu"}]}}}

    scheduler.api.fail("/pods", 403)

    assert {} == (await scheduler.post("/preempt", question))["NodeNameToMetaVictims"]


async def test_pod_goes_where_kube_scheduler_chose(api: Any, tmp_path: Any) -> None:
    """With `--prioritize` every Node that fits is named and ranked, nothing is reserved, and the bind decides there."""
    async with running(api, tmp_path, prioritizes=True) as scheduler:
        pod = scheduler.api.pod("p")
        answer = await scheduler.filter(pod, "exact", "locked", "ghost")
        assert ["exact", "locked"] == answer["NodeNames"]
        assert {"ghost": "node unregistered"} == answer["FailedNodes"]
        assert 0 == len(scheduler.cluster.reservations)

        scores: Any = await scheduler.post("/prioritize", {"Pod": pod, "NodeNames": answer["NodeNames"]})
        assert [{"Host": "exact", "Score": 0}, {"Host": "locked", "Score": 0}] == scores
        assert "" == await scheduler.bind(pod, "exact")
        assert 1 == len(scheduler.api.writes)


async def test_node_objects_are_ranked_too(scheduler: Running) -> None:
    """kube-scheduler sends them where `nodeCacheCapable` is not set."""
    nodes = {"items": [scheduler.api.objects["nodes"]["exact"]]}

    scores: Any = await scheduler.post("/prioritize", {"Pod": a_pod(), "Nodes": nodes})
    assert [{"Host": "exact", "Score": 0}] == scores


@pytest.mark.parametrize("path", ["/prioritize", "/preempt"])
async def test_answers_without_a_place_for_errors_are_statuses(scheduler: Running, path: str) -> None:
    """kube-scheduler takes anything but 200 for one."""
    odd = a_pod(annotations={"hami.io/device-scoring-weights": "x"})
    for body, status, text in ((b"{", 400, "must be JSON"), ({"Pod": odd}, 503, "device-scoring-weights")):
        data: Any = {"data": body} if isinstance(body, bytes) else {"json": body}
        async with scheduler.session.post(scheduler.url + path, **data) as answer:
            assert (status, True) == (answer.status, text in await answer.text())
