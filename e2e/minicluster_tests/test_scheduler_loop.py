"""
The scheduler asks, waits, wakes and binds as the real one was measured to.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from minicluster_tests.apiserver_peers import Api, a_node, eventually
from minicluster_tests.scheduler_peers import Extender, asking, configured, extender, scheduling

Object = dict[str, Any]


@pytest.fixture
async def peer(api: Api) -> AsyncIterator[Extender]:
    """Yield an extender that binds through the API."""
    async with extender() as peer:

        async def bind(body: Object) -> None:
            await api.bind(body["PodName"], body["Node"], uid=body["PodUID"], annotations={"bound-by": "extender"})

        peer.bind = bind
        yield peer


async def pod_on(api: Api, name: str) -> str | None:
    """Return the Node of a Pod, None while it has none."""
    pod = await api.get(f"{api.pods}/{name}")
    node: str | None = pod["spec"].get("nodeName")
    return node


async def bound(api: Api, name: str = "p") -> Object:
    """Return a Pod once it has a Node."""
    assert await eventually(lambda: pod_on(api, name))
    pod: Object = await api.get(f"{api.pods}/{name}")
    return pod


async def condition(api: Api, name: str = "p") -> Object:
    """Return the PodScheduled condition once there is one."""

    async def found() -> Object | None:
        pod = await api.get(f"{api.pods}/{name}")
        return next(iter(pod["status"].get("conditions") or ()), None)

    answer: Object = await eventually(found)
    return answer


async def calls(peer: Extender, count: int, verb: str = "filter") -> int:
    """Wait for *count* calls, then a moment for more, and return how many there were."""

    async def enough() -> bool:
        return len(peer.of(verb)) >= count

    await eventually(enough)
    await asyncio.sleep(0.15)
    return len(peer.of(verb))


async def test_ordinary_pods_go_to_a_node_with_room_and_say_so(server: str, api: Api) -> None:
    """
    Two cpus fit twice on four; the third Pod waits with the reason and its event.
    """
    await api.create_node()
    spec = {"containers": [{"name": "main", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}
    async with scheduling(server, configured()):
        for name in ("a", "b"):
            await api.create(api.pods, {"metadata": {"name": name}, "spec": spec})
            await bound(api, name)
        await api.create(api.pods, {"metadata": {"name": "c"}, "spec": spec})
        refused = await condition(api, "c")

        text = (
            "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims"
        )
        assert ("False", "Unschedulable", f"{text} found for incoming pod.") == tuple(
            refused[key] for key in ("status", "reason", "message")
        )
        events = {event["involvedObject"]["name"]: event for event in (await api.list("/api/v1/events"))[0]}
        assert ("Scheduled", "Successfully assigned default/a to n1") == (events["a"]["reason"], events["a"]["message"])
        assert ("FailedScheduling", refused["message"]) == (events["c"]["reason"], events["c"]["message"])

        await api.delete(f"{api.pods}/a", grace_seconds=0)
        assert "n1" == (await bound(api, "c"))["spec"]["nodeName"]


async def test_extender_gets_the_bytes_the_real_scheduler_sends(server: str, api: Api, peer: Extender) -> None:
    """
    Header for header and key for key, the whole Pod without kind, no Pod object at bind.
    """
    await api.create_node()
    async with scheduling(server, configured(peer.url)):
        made = await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        pod = await bound(api)

    ask, bind = peer.of("filter")[0], peer.of("bind")[0]
    assert ["Host", "User-Agent", "Content-Length", "Content-Type", "Accept-Encoding"] == [
        name for name, _ in ask.headers
    ]
    assert ("Go-http-client/1.1", "application/json", "gzip") == tuple(
        dict(ask.headers)[h] for h in ("User-Agent", "Content-Type", "Accept-Encoding")
    )
    assert (["Pod", "Nodes", "NodeNames"], None, ["n1"]) == (list(ask.body), ask.body["Nodes"], ask.body["NodeNames"])
    assert made == {"kind": "Pod", "apiVersion": "v1", **ask.body["Pod"]}
    assert {"PodName": "p", "PodNamespace": "default", "PodUID": made["metadata"]["uid"], "Node": "n1"} == bind.body
    assert {"bound-by": "extender"} == pod["metadata"]["annotations"]


async def test_extender_that_caches_no_nodes_gets_them_whole(server: str, api: Api, peer: Extender) -> None:
    """
    Without nodeCacheCapable the Nodes travel and NodeNames is null; the answer is a list of Nodes.
    """
    await api.create_node()
    peer.answers["filter"] = {"nodes": {"items": [{"metadata": {"name": "n1"}}]}}
    async with scheduling(server, configured(peer.url, nodeCacheCapable=False)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        await bound(api)

    body = peer.of("filter")[0].body
    assert (None, ["n1"]) == (body["NodeNames"], [node["metadata"]["name"] for node in body["Nodes"]["items"]])
    assert "4" == body["Nodes"]["items"][0]["status"]["allocatable"]["cpu"]


async def test_extender_is_asked_only_about_its_resources_and_alone_accounts_for_them(
    server: str, api: Api, peer: Extender
) -> None:
    """
    No Node offers the resource, yet the Pod fits: the scheduler ignores it.
    """
    await api.create_node()
    async with scheduling(server, configured(peer.url)):
        await api.create_pod("plain")
        await bound(api, "plain")
        assert [] == peer.calls
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking(8)})
        await bound(api)


async def test_refused_pod_is_asked_about_twice_and_then_left_alone(server: str, api: Api, peer: Extender) -> None:
    """
    The second call comes from the status write of the first; the same text again writes nothing.
    """
    await api.create_node()
    peer.room = False
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})

        assert 2 == await calls(peer, 2)
        assert "0/1 nodes are available: 1 no room. preemption" in (await condition(api))["message"]


async def test_changing_refusal_text_loops(server: str, api: Api, peer: Extender) -> None:
    """
    Each new text is a new status, and each status change wakes its Pod.
    """
    await api.create_node()
    peer.room = False
    numbers = iter(range(10_000))
    peer.reason = lambda: f"only {next(numbers)} MiB free"
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})

        assert 20 <= await calls(peer, 20)


READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
EVENTS: list[tuple[str, str, Object, bool]] = [
    ("node annotation", "/api/v1/nodes/n1", {"metadata": {"annotations": {"a": "b"}}}, True),
    ("node label", "/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}}, True),
    ("node allocatable", "/api/v1/nodes/n1/status", {"status": {"allocatable": {"x/y": "1"}}}, True),
    (
        "node condition",
        "/api/v1/nodes/n1/status",
        {"status": {"conditions": [READY, {"type": "X", "status": "True"}]}},
        True,
    ),
    (
        "heartbeat",
        "/api/v1/nodes/n1/status",
        {"status": {"conditions": [{**READY, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}},
        False,
    ),
    (
        "bound pod's annotation",
        "/api/v1/namespaces/default/pods/bound",
        {"metadata": {"annotations": {"a": "b"}}},
        True,
    ),
    ("bound pod's end", "/api/v1/namespaces/default/pods/bound/status", {"status": {"phase": "Succeeded"}}, True),
    (
        "foreign unbound pod",
        "/api/v1/namespaces/default/pods/foreign",
        {"metadata": {"annotations": {"a": "b"}}},
        False,
    ),
    ("own annotation", "/api/v1/namespaces/default/pods/p", {"metadata": {"annotations": {"a": "b"}}}, True),
    ("config map", "/api/v1/namespaces/default/configmaps/c", {"data": {"a": "b"}}, False),
]


@pytest.mark.parametrize(("path", "patch", "wakes"), [row[1:] for row in EVENTS], ids=[row[0] for row in EVENTS])
async def test_events_that_could_make_room_wake_a_refused_pod(
    server: str, api: Api, peer: Extender, path: str, patch: Object, wakes: bool
) -> None:
    """
    The table was measured on kube-scheduler 1.34.4: every event it watches, and no other.
    """
    await api.create_node()
    await api.create_pod("bound", nodeName="n1")
    await api.create_pod("foreign", schedulerName="other")
    await api.create("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "c"}})
    peer.room = False
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        assert 2 == await calls(peer, 2)

        await api.patch(path, patch)

        assert wakes is (await calls(peer, 3 if wakes else 2) > 2)


async def test_event_during_the_filter_call_is_not_lost(server: str, api: Api, peer: Extender) -> None:
    """
    What happens while the extender thinks wakes the Pod afterwards.
    """
    await api.create_node()
    peer.room, peer.delays["filter"] = False, 0.2
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        assert 2 == await calls(peer, 2)
        await api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"a": "1"}}})
        assert await eventually(lambda: asyncio.sleep(0, len(peer.of("filter")) == 3))
        await api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"a": "2"}}})

        assert 4 == await calls(peer, 4)


async def test_extender_error_backs_off_whatever_happens(server: str, api: Api, peer: Extender) -> None:
    """
    It is no refusal: SchedulerError, and events do not shorten the wait of one to two seconds.
    """
    await api.create_node()
    peer.answers["filter"] = {"Error": "out of order"}
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        failed = await condition(api)
        await api.patch("/api/v1/nodes/n1", {"metadata": {"labels": {"a": "b"}}})
        await asyncio.sleep(0.3)
        early = len(peer.of("filter"))
        await calls(peer, 2)
        first, second = [call.at for call in peer.of("filter")[:2]]

    assert ("SchedulerError", "out of order") == (failed["reason"], failed["message"])
    assert 1 == early
    assert 1.0 <= second - first <= 2.2


async def test_failed_bind_frees_the_place_and_is_tried_again(server: str, api: Api, peer: Extender) -> None:
    """
    The other refused Pods are woken by it.
    """
    await api.create_node()
    peer.answers["bind"] = {"Error": "node is locked"}
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking(cpu="3")})
        await calls(peer, 1, "bind")
        failed = await condition(api)
        await api.create_pod("other", **asking_cpu("3"))
        await bound(api, "other")

    assert ("SchedulerError", "node is locked") == (failed["reason"], failed["message"])


def asking_cpu(amount: str) -> Object:
    """Return a spec that asks for cpu only."""
    return {"containers": [{"name": "main", "image": "i", "resources": {"limits": {"cpu": amount}}}]}


async def test_ignorable_extender_that_is_down_is_left_out(server: str, api: Api) -> None:
    """
    With the port closed the in-tree result stands; a strict one fails the attempt with Go's words.
    """
    await api.create_node()
    url = "http://127.0.0.1:1"
    async with scheduling(server, configured(url, ignorable=True, bindVerb="")):
        await api.create(api.pods, {"metadata": {"name": "a"}, "spec": asking()})
        await bound(api, "a")
    async with scheduling(server, configured(url)):
        await api.create(api.pods, {"metadata": {"name": "b"}, "spec": asking()})
        failed = await condition(api, "b")

    assert f'Post "{url}/filter": dial tcp 127.0.0.1:1: connect: connection refused' == failed["message"]


async def test_filters_come_one_at_a_time_and_binds_all_at_once(server: str, api: Api, peer: Extender) -> None:
    """
    A slow bind holds nobody up; at most two connections stay open for the next burst.
    """
    await api.create_node()
    peer.answers["bind"] = {"Error": ""}
    for index in range(12):
        await api.create(api.pods, {"metadata": {"name": f"p{index}"}, "spec": asking()})
    peer.delays["bind"] = 0.3
    async with scheduling(server, configured(peer.url)):
        await calls(peer, 12, "bind")

    assert (1, 12) == (peer.most["filter"], peer.most["bind"])


async def test_prioritize_decides_between_nodes(server: str, api: Api, peer: Extender) -> None:
    """
    With weight 10 an extender's full score outweighs the in-tree ones.
    """
    for name in ("n1", "n2", "n3"):
        await api.create_node(name)
    peer.answers["filter"] = {"NodeNames": ["n1", "n2", "n3"]}
    peer.answers["prioritize"] = [{"Host": "n2", "Score": 10}, {"Host": "n1", "Score": 0}]
    async with scheduling(server, configured(peer.url, prioritizeVerb="prioritize", weight=10)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        pod = await bound(api)

    assert "n2" == pod["spec"]["nodeName"]


async def test_higher_priority_goes_first_then_the_older_pod(server: str, api: Api, peer: Extender) -> None:
    """
    The order of a full queue.
    """
    await api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "high"}, "value": 10})
    for name in ("a", "b"):
        await api.create(api.pods, {"metadata": {"name": name}, "spec": asking()})
    await api.create(api.pods, {"metadata": {"name": "c"}, "spec": {**asking(), "priorityClassName": "high"}})
    await api.create_node()
    async with scheduling(server, configured(peer.url)):
        for name in ("a", "b", "c"):
            await bound(api, name)

    assert ["c", "a", "b"] == [call.body["Pod"]["metadata"]["name"] for call in peer.of("filter")]


async def test_gated_pod_waits_until_its_gates_are_gone(server: str, api: Api) -> None:
    """
    Nobody is asked about it before.
    """
    await api.create_node()
    async with scheduling(server, configured()):
        await api.create_pod(schedulingGates=[{"name": "wait"}])
        await api.create_pod("other")
        await bound(api, "other")
        assert None is await pod_on(api, "p")

        await api.patch(f"{api.pods}/p", {"spec": {"schedulingGates": None}})
        await bound(api)


async def test_nodes_that_may_not_take_a_pod_are_not_offered(server: str, api: Api, peer: Extender) -> None:
    """
    Tainted, cordoned, not ready or unselected Nodes never reach the extender.
    """
    await api.create_node("good", labels={"gpu": "on"})
    await api.create_node("unselected")
    for name, spec in (
        ("tainted", {"taints": [{"key": "k", "effect": "NoSchedule"}]}),
        ("cordoned", {"unschedulable": True}),
    ):
        await api.create("/api/v1/nodes", {**a_node(name, labels={"gpu": "on"}), "spec": spec})
    sick = a_node("sick", labels={"gpu": "on"})
    sick["status"]["conditions"][0]["status"] = "False"
    await api.create("/api/v1/nodes", sick)
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": {**asking(), "nodeSelector": {"gpu": "on"}}})
        await bound(api)

    assert ["good"] == peer.of("filter")[0].body["NodeNames"]


async def test_extender_sees_a_sample_of_many_nodes_and_the_window_moves_on(
    server: str, api: Api, peer: Extender
) -> None:
    """
    48 percent of 240, the next Pod's sample starts where the last one's ended; 100 percent shows all.
    """
    for index in range(240):
        await api.create_node(f"n{index:03}")
    peer.room = False
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        assert 2 == await calls(peer, 2)
    first, second = [call.body["NodeNames"] for call in peer.of("filter")]
    peer.calls.clear()
    async with scheduling(server, {**configured(peer.url), "percentageOfNodesToScore": 100}):
        await calls(peer, 1)

    assert (117, 117) == (len(first), len(second))
    assert not set(first) & set(second)
    assert 240 == len(peer.of("filter")[0].body["NodeNames"])


async def test_pod_without_any_node_is_tried_again_soon_after_one_comes(server: str, api: Api) -> None:
    """
    The first Node of a cluster is found by back-off.
    """
    async with scheduling(server, configured()):
        await api.create_pod()
        assert "no nodes available to schedule pods" == (await condition(api))["message"]
        await api.create_node()
        await bound(api)


async def test_api_outage_is_survived(server: str, api: Api, peer: Extender) -> None:
    """
    Dropped watches and failing reports cost time, never a Pod.
    """
    await api.create_node()
    async with scheduling(server, configured(peer.url)):
        await api.create("/minicluster/faults", {"path": "watch=true", "times": 4, "status": 500})
        await api.create(
            "/minicluster/faults", {"method": "POST", "path": "events", "times": 3, "disconnect": "before"}
        )
        await api.create("/minicluster/watches/drop", {"how": "abort"})
        for index in range(5):
            await api.create(api.pods, {"metadata": {"name": f"p{index}"}, "spec": asking()})
        for index in range(5):
            await bound(api, f"p{index}")


async def test_pod_bound_by_somebody_else_is_left_alone(server: str, api: Api, peer: Extender) -> None:
    """
    The queue forgets it.
    """
    await api.create_node()
    peer.room = False
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        assert 2 == await calls(peer, 2)
        await api.bind("p")
        await api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"a": "b"}}})

        assert 2 == await calls(peer, 2)


async def test_many_pods_spread_and_none_is_left(server: str, api: Api) -> None:
    """
    Sixty Pods of one cpu on fifteen Nodes of four fill them exactly.
    """
    for index in range(15):
        await api.create_node(f"n{index}")
    async with scheduling(server, configured()):
        spec = asking_cpu("1")
        await asyncio.gather(*(api.create(api.pods, {"metadata": {"name": f"p{i}"}, "spec": spec}) for i in range(60)))

        async def all_bound() -> bool:
            pods, _ = await api.list(api.pods, fieldSelector="spec.nodeName!=")
            return len(pods) == 60

        assert await eventually(all_bound, 10)
    pods, _ = await api.list(api.pods)
    counts: dict[str, int] = {}
    for pod in pods:
        counts[pod["spec"]["nodeName"]] = counts.get(pod["spec"]["nodeName"], 0) + 1
    assert {4} == set(counts.values())


async def test_deleted_and_remade_pod_is_a_new_pod(server: str, api: Api, peer: Extender) -> None:
    """
    Its namesake's refusal does not stick to it.
    """
    await api.create_node()
    peer.room = False
    async with scheduling(server, configured(peer.url)):
        await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        await calls(peer, 2)
        await api.delete(f"{api.pods}/p")
        peer.room = True
        made = await api.create(api.pods, {"metadata": {"name": "p"}, "spec": asking()})
        pod = await bound(api)

    assert made["metadata"]["uid"] == pod["metadata"]["uid"]
