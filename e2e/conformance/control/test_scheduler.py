"""
kube-scheduler: its calls to extenders, its retries, and its messages.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from conformance.peers.clusters import Peer
from conformance.peers.extenders import NODES, SCHEDULER, Stage, schedulable, stage
from conformance.peers.objects import Api, a_node, a_pod, limits
from hamicommon.model import Object
from testbed.waiting import eventually


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def running(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """The scheduler and the Nodes of all tests of this module."""
    async with stage(peer, tmp_path_factory.mktemp("scheduler")) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="session")
async def play(running: Stage, api: Api) -> AsyncIterator[Stage]:
    """Yield the stage for the test's namespace, with reset extenders and Nodes."""

    async def bind(body: Object) -> None:
        await api.bind(body["PodName"], body["Node"], uid=body["PodUID"], annotations={"bound-by": "extender"})

    for extender in running.extenders.values():
        extender.__init__()  # type: ignore[misc]
    running.gpu.bind = bind
    yield Stage(api, running.extenders)
    running.gpu.delays.clear()
    await api.request("DELETE", api.pods, {"gracePeriodSeconds": 0})
    for name in NODES:
        patch = {"metadata": {"annotations": None}, "spec": {"unschedulable": None, "taints": None}}
        await api.patch(f"/api/v1/nodes/{name}", patch)
    await schedulable(api, *NODES)


async def test_ordinary_pods(play: Stage) -> None:
    """A Pod is bound to a Node where it fits, with an Event, and a Pod that fits on no Node waits until it does."""
    for name in ("a", "b", "c"):
        await play.create(name, cpu="3")
    nodes = {name: (await play.bound(name))["spec"]["nodeName"] for name in ("a", "b", "c")}
    await play.create("d", cpu="3")
    refused = await play.refused("d")

    text = await play.refusal(Insufficient_cpu=3)
    assert set(NODES) == set(nodes.values())
    assert ("Unschedulable", text) == (refused["reason"], refused["message"])
    assert [("Warning", "FailedScheduling", text)] == await play.events("d")
    told = f"Successfully assigned {play.api.namespace}/a to {nodes['a']}"
    assert [("Normal", "Scheduled", told)] == await play.events("a")

    await play.api.delete(f"{play.api.pods}/a", grace_seconds=0)
    assert nodes["a"] == (await play.bound("d"))["spec"]["nodeName"]


async def test_event_fields(play: Stage) -> None:
    """A scheduler's Event has the scheduler's name as component and the Pod as involved object."""
    made = await play.create()
    await play.bound()
    await play.events()

    ((event,), _) = await play.api.list(f"{play.api.place}/events", fieldSelector="involvedObject.name=p")

    about = {"kind": "Pod", "apiVersion": "v1", "name": "p", "uid": made["metadata"]["uid"]}
    assert about == {key: event["involvedObject"][key] for key in about}
    assert (SCHEDULER, "Binding", None, None) == tuple(
        event[key] for key in ("reportingComponent", "action", "firstTimestamp", "lastTimestamp")
    )
    assert event["eventTime"].endswith("Z")


async def test_bytes(play: Stage) -> None:
    """An extender gets Go's headers, the keys Pod, Nodes and NodeNames with the whole Pod, and four names at bind."""
    made = await play.create(gpu=1)
    pod = await play.bound()

    ask, bind = play.gpu.of("filter")[0], play.gpu.of("bind")[0]
    names = ["Host", "User-Agent", "Content-Length", "Content-Type", "Accept-Encoding"]
    assert [names, names] == [[name for name, _ in call.headers] for call in (ask, bind)]
    assert ("Go-http-client/1.1", "application/json", "gzip") == tuple(
        dict(ask.headers)[header] for header in ("User-Agent", "Content-Type", "Accept-Encoding")
    )
    assert (["Pod", "Nodes", "NodeNames"], None) == (list(ask.body), ask.body["Nodes"])
    assert set(NODES) == set(ask.body["NodeNames"])
    asked = ask.body["Pod"]
    assert "kind" not in asked
    assert (made["spec"], made["metadata"]["uid"]) == (asked["spec"], asked["metadata"]["uid"])
    node = pod["spec"]["nodeName"]
    who = {"PodName": "p", "PodNamespace": play.api.namespace, "PodUID": made["metadata"]["uid"]}
    assert {**who, "Node": node} == bind.body
    assert {"bound-by": "extender"} == pod["metadata"]["annotations"]


async def test_connection_is_kept(play: Stage) -> None:
    """Consecutive calls use one connection."""
    for name in ("a", "b", "c"):
        await play.create(name, gpu=1)
        await play.bound(name)

    assert len({call.connection for call in play.gpu.calls}) <= 2


async def test_whole_nodes(play: Stage) -> None:
    """An extender without nodeCacheCapable gets whole Nodes, and null as NodeNames."""
    await play.create(whole=1)
    extender = play.extenders["conformance.test/whole"]
    extender.answers["filter"] = {"nodes": {"items": [{"metadata": {"name": "s2"}}]}}

    pod = await play.bound()

    body = extender.of("filter")[-1].body
    assert "s2" == pod["spec"]["nodeName"]
    assert (None, set(NODES)) == (body["NodeNames"], {node["metadata"]["name"] for node in body["Nodes"]["items"]})
    assert {"4"} == {node["status"]["allocatable"]["cpu"] for node in body["Nodes"]["items"]}


async def test_managed_resources(play: Stage) -> None:
    """An extender is called only for Pods that request its resource, which the scheduler itself ignores."""
    await play.create("plain")
    await play.bound("plain")
    assert [] == play.gpu.calls

    await play.create(gpu=1000)
    await play.bound()


async def test_request_of_an_init_container(play: Stage) -> None:
    """An extender is also called for a Pod if only an init container requests its resource."""
    init = {**limits(**{"conformance.test/gpu": 1})[0], "name": "init"}
    await play.make("p", initContainers=[init])

    await play.bound()

    assert 1 == len(play.gpu.of("bind"))


async def test_rejected_pod_is_filtered_twice(play: Stage) -> None:
    """A rejected Pod is filtered twice, because the write of its status wakes it, and then not again."""
    play.gpu.room = False
    await play.create(gpu=1)

    assert 2 == await play.gpu.asked(2)
    text = await play.refusal(no_room=3)
    condition = await play.refused()
    assert ("Unschedulable", text) == (condition["reason"], condition["message"])
    assert [("Warning", "FailedScheduling", text)] * 2 == await play.events()


async def test_reasons_are_counted(play: Stage) -> None:
    """The text of a rejection has the number of Nodes for each reason, sorted."""
    play.gpu.answers["filter"] = {"NodeNames": [], "FailedNodes": {"s1": "b", "s2": "a", "s3": "b"}}
    await play.create(gpu=1)

    assert await play.refusal(a=1, b=2) == (await play.refused())["message"]


async def test_failed_for_good(play: Stage) -> None:
    """Preemption does not consider a Node that the extender reports as unresolvable."""
    failed = {"s1": "never", "s2": "never", "s3": "never"}
    play.gpu.answers["filter"] = {"NodeNames": [], "FailedAndUnresolvableNodes": failed}
    await play.create(gpu=1)

    text = await play.refusal("Preemption is not helpful for scheduling", never=3)
    assert text == (await play.refused())["message"]


async def test_refusal_beside_other_filters(play: Stage) -> None:
    """The extender does not get Nodes that an in-tree filter rejects, and both reasons are in the text."""
    play.gpu.room = False
    for name in ("a", "b"):
        await play.create(name, cpu="3")
    taken = {(await play.bound(name))["spec"]["nodeName"] for name in ("a", "b")}

    await play.create(gpu=1, cpu="3")

    assert await play.refusal(Insufficient_cpu=2, no_room=1) == (await play.refused())["message"]
    assert [set(NODES) - taken] == [set(call.body["NodeNames"]) for call in play.gpu.of("filter")[:1]]


async def test_changing_text_loops(play: Stage) -> None:
    """A rejection with a changing text is retried without end."""
    play.gpu.room = False
    numbers = iter(range(1_000_000))
    play.gpu.reason = lambda: f"only {next(numbers)} MiB free"
    await play.create(gpu=1)

    await eventually(lambda: len(play.gpu.of("filter")) >= 15)
    play.gpu.reason = lambda: "no room"
    await play.gpu.asked(16)


READY = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
EVENTS: list[tuple[str, str, Object, bool]] = [
    ("node annotation", "/api/v1/nodes/s1", {"metadata": {"annotations": {"a": "b"}}}, True),
    ("node label", "/api/v1/nodes/s1", {"metadata": {"labels": {"a": "b"}}}, True),
    ("node allocatable", "/api/v1/nodes/s1/status", {"status": {"allocatable": {"x.y/z": "1"}}}, True),
    (
        "node condition",
        "/api/v1/nodes/s1/status",
        {"status": {"conditions": [READY, {"type": "X", "status": "True"}]}},
        True,
    ),
    (
        "heartbeat",
        "/api/v1/nodes/s1/status",
        {"status": {"conditions": [{**READY, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}]}},
        False,
    ),
    ("bound pod's annotation", "{pods}/bound", {"metadata": {"annotations": {"a": "b"}}}, True),
    ("bound pod's end", "{pods}/bound/status", {"status": {"phase": "Succeeded"}}, True),
    ("foreign unbound pod", "{pods}/foreign", {"metadata": {"annotations": {"a": "b"}}}, False),
    ("own annotation", "{pods}/p", {"metadata": {"annotations": {"a": "b"}}}, True),
    ("own label", "{pods}/p", {"metadata": {"labels": {"a": "b"}}}, True),
    ("config map", "{place}/configmaps/c", {"data": {"a": "b"}}, False),
]


@pytest.mark.parametrize(("path", "patch", "wakes"), [row[1:] for row in EVENTS], ids=[row[0] for row in EVENTS])
async def test_what_wakes_a_refused_pod(play: Stage, path: str, patch: Object, wakes: bool) -> None:
    """A rejected Pod is filtered again after every change that the scheduler watches, and after no other."""
    api = play.api
    await play.make("bound", nodeName="s1")
    await play.make("foreign", schedulerName="nobody")
    await api.create(api.config_maps, {"metadata": {"name": "c"}})
    play.gpu.room = False
    await play.create(gpu=1)
    asked = await play.gpu.asked(2)

    await api.patch(path.format(pods=api.pods, place=api.place), patch, "strategic")

    assert wakes is (await play.gpu.asked(asked + wakes) > asked)


async def test_woken_when_room_is_made(play: Stage) -> None:
    """A rejected Pod is bound soon after a bound one is deleted."""
    await play.create("first", gpu=1)
    await play.bound("first")
    play.gpu.room = False
    await play.create(gpu=1)
    await play.gpu.asked(2)

    play.gpu.room = True
    await play.api.delete(f"{play.api.pods}/first", grace_seconds=0)

    await play.bound()


async def test_event_during_the_filter_call(play: Stage) -> None:
    """A change during an extender's call wakes the Pod afterwards."""
    play.gpu.room, play.gpu.delays["filter"] = False, 0.5
    await play.create(gpu=1)
    asked = await play.gpu.asked(2)
    path = "/api/v1/nodes/s1"
    await play.api.patch(path, {"metadata": {"annotations": {"a": "1"}}})
    await eventually(lambda: len(play.gpu.of("filter")) == asked + 1)

    await play.api.patch(path, {"metadata": {"annotations": {"a": "2"}}})

    assert asked + 2 == await play.gpu.asked(asked + 2)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"Error": "out of order"}, "out of order"),
        (500, "failed filter with extender at URL {url}/filter, code 500"),
        (
            {"NodeNames": ["nowhere"]},
            'extender "{url}" claims a filtered node "nowhere" which is not found in the input node list',
        ),
    ],
)
async def test_filter_error(play: Stage, answer: Any, text: str) -> None:
    """An error of filter is a SchedulerError, and is retried after one to two seconds in any case."""
    play.gpu.answers["filter"] = answer
    await play.create(gpu=1)
    failed = await play.refused()
    await play.api.patch("/api/v1/nodes/s1", {"metadata": {"annotations": {"a": "b"}}})
    await play.gpu.asked(2)

    first, second = play.gpu.of("filter")[:2]
    url = f"http://{dict(first.headers)['Host']}/gpu"
    assert ("SchedulerError", text.format(url=url)) == (failed["reason"], failed["message"])
    assert 1.0 <= second.at - first.at <= 3.0


async def test_failed_bind(play: Stage) -> None:
    """A failed bind frees the Node's resources at once, and is retried after a while."""
    play.gpu.answers["bind"] = {"Error": "node is locked"}
    for name in ("a", "b"):
        await play.create(name, cpu="3")
        await play.bound(name)
    await play.create(gpu=1, cpu="3")
    failed = await play.refused()
    await play.create("other", cpu="3")

    await play.bound("other")

    assert ("SchedulerError", True) == (failed["reason"], "node is locked" in failed["message"])
    events = await play.events()
    assert [("Warning", "FailedScheduling", failed["message"])] == events[:1]


async def test_failed_bind_is_retried(play: Stage) -> None:
    """One to three seconds after a failed bind, the Pod goes through filter and bind again."""
    play.gpu.answers["bind"] = {"Error": "node is locked"}
    await play.create(gpu=1)
    await eventually(lambda: len(play.gpu.of("bind")) == 1)
    del play.gpu.answers["bind"]

    await play.bound()

    assert (2, 2) == (len(play.gpu.of("filter")), len(play.gpu.of("bind")))
    first, second = play.gpu.of("bind")
    assert 0.9 <= second.at - first.at <= 3.0


async def test_bind_error_of_a_bound_pod(play: Stage) -> None:
    """A Pod that is bound although bind answered an error stays bound, and is not bound again."""

    async def bind(body: Object) -> None:
        await play.api.bind(body["PodName"], body["Node"], uid=body["PodUID"])

    async def answer(body: Object) -> None:
        await bind(body)
        play.gpu.answers["bind"] = {"Error": "timed out"}

    play.gpu.bind = answer
    play.gpu.delays["bind"] = 0.2
    await play.create("a", gpu=1)
    await play.bound("a")
    await asyncio.sleep(2.5)

    assert 1 == len(play.gpu.of("bind"))


async def test_extender_that_is_down(play: Stage) -> None:
    """An extender that is down fails the attempt with Go's text, unless it is ignorable."""
    await play.create("a", weak=1)
    await play.bound("a")
    await play.create("b", dead=1)

    failed = await play.refused("b")

    text = 'Post "http://127.0.0.1:1/filter": dial tcp 127.0.0.1:1: connect: connection refused'
    assert ("SchedulerError", text) == (failed["reason"], failed["message"])


async def test_filters_one_at_a_time(play: Stage) -> None:
    """Filter calls come one at a time, and bind calls may overlap."""
    play.gpu.delays["bind"] = 1.0
    await asyncio.gather(*(play.create(f"p{index}", gpu=1) for index in range(10)))
    for index in range(10):
        await play.bound(f"p{index}")

    assert 1 == play.gpu.most["filter"]
    assert play.gpu.most["bind"] >= 5


async def test_prioritize(play: Stage) -> None:
    """An extender's highest score with weight 10 outweighs the scheduler's scores."""
    ranked = play.extenders["conformance.test/ranked"]
    ranked.answers["filter"] = {"NodeNames": list(NODES)}
    ranked.answers["prioritize"] = [{"Host": "s2", "Score": 10}, {"Host": "s1", "Score": 0}]
    await play.create(ranked=1)

    pod = await play.bound()

    assert "s2" == pod["spec"]["nodeName"]
    body = ranked.of("prioritize")[0].body
    assert (["Pod", "Nodes", "NodeNames"], set(NODES)) == (list(body), set(body["NodeNames"]))


async def test_one_node_needs_no_score(play: Stage) -> None:
    """An extender that returns one Node gets no prioritize call."""
    ranked = play.extenders["conformance.test/ranked"]
    ranked.answers["filter"] = {"NodeNames": ["s3"]}
    await play.create(ranked=1)

    assert "s3" == (await play.bound())["spec"]["nodeName"]
    assert [] == ranked.of("prioritize")


async def test_order(play: Stage, cleanup: list[str]) -> None:
    """Pending Pods are scheduled by priority, and then by age."""
    high = f"high-{play.api.namespace}"
    cleanup.append(f"/apis/scheduling.k8s.io/v1/priorityclasses/{high}")
    await play.api.create("/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": high}, "value": 10})

    async def made() -> Object:
        # Admission learns of the class with a delay.
        found: Object = await play.api.create(play.api.pods, a_pod("x", priorityClassName=high), dryRun="All")
        return found

    await eventually(made)
    play.gpu.delays["filter"] = 1.5
    await play.create("plug", gpu=1)
    await eventually(lambda: play.gpu.of("filter"))
    for name in ("a", "b"):
        await play.create(name, gpu=1)
    await play.create("c", gpu=1, priority=high)
    await eventually(lambda: len(play.gpu.of("filter")) == 2)
    play.gpu.delays.clear()
    for name in ("a", "b", "c"):
        await play.bound(name)

    assert ["plug", "c", "a", "b"] == play.gpu.filtered()


async def test_gates(play: Stage) -> None:
    """A Pod with scheduling gates causes no extender call until its gates are removed."""
    await play.make("p", containers=limits(**{"conformance.test/gpu": 1}), schedulingGates=[{"name": "wait"}])
    await play.create("other")
    await play.bound("other")
    assert [] == play.gpu.calls

    await play.api.patch(f"{play.api.pods}/p", {"spec": {"schedulingGates": None}})

    await play.bound()


async def test_nodes_that_may_not_take_a_pod(play: Stage) -> None:
    """An extender never gets cordoned, tainted and unselected Nodes."""
    await play.api.patch("/api/v1/nodes/s2", {"spec": {"unschedulable": True}})
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    await play.api.patch("/api/v1/nodes/s3", {"spec": {"taints": [taint]}})

    play.gpu.room = False
    await play.create(gpu=1)

    # The scheduler learns of Nodes and of Pods by two watches, so its first calls may name more Nodes.
    await eventually(lambda: play.gpu.of("filter")[-1].body["NodeNames"] == ["s1"])


@pytest.mark.other_in("1.33", "a rejection names the taint that is not tolerated")
@pytest.mark.parametrize(
    ("node", "reason"),
    [
        ({"unschedulable": True}, "node(s) were unschedulable"),
        ({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}, "node(s) had untolerated taint(s)"),
    ],
)
async def test_texts_of_filters(play: Stage, node: Object, reason: str) -> None:
    """The status of a Pod without a feasible Node has the scheduler's reasons."""
    for name in NODES:
        await play.api.patch(f"/api/v1/nodes/{name}", {"spec": node})

    text = await play.refusal("Preemption is not helpful for scheduling", **{reason: 3})
    await play.create()

    async def is_refused() -> bool:
        decision = await play.decision()
        if decision and decision["status"] == "True":
            # The scheduler learns of Nodes and of Pods by two watches, so it may bind by an old state of a Node.
            await play.api.delete(f"{play.api.pods}/p", grace_seconds=0)
            await play.create()
        return bool(decision and decision["message"] == text)

    await eventually(is_refused)


async def test_pod_bound_by_another_scheduler(play: Stage) -> None:
    """A rejected Pod that another scheduler binds is not filtered again."""
    play.gpu.room = False
    await play.create(gpu=1)
    await play.gpu.asked(2)
    await play.api.bind("p", "s1")
    await play.create("other", gpu=1)  # The scheduler learns of it after the bind, by the same watch.
    await eventually(lambda: play.gpu.filtered().count("other") >= 2)
    play.gpu.calls.clear()
    await play.api.patch("/api/v1/nodes/s1", {"metadata": {"annotations": {"a": "b"}}})

    await eventually(lambda: "other" in play.gpu.filtered())
    assert "p" not in play.gpu.filtered()


async def test_remade_pod(play: Stage) -> None:
    """A rejected Pod that is deleted and created again is a new Pod."""
    play.gpu.room = False
    await play.create(gpu=1)
    await play.gpu.asked(2)
    await play.api.delete(f"{play.api.pods}/p")
    play.gpu.room = True

    made = await play.create(gpu=1)

    assert made["metadata"]["uid"] == (await play.bound())["metadata"]["uid"]


async def test_many_pods(play: Stage) -> None:
    """Twelve Pods of one cpu fill three Nodes of four exactly."""
    await asyncio.gather(*(play.create(f"p{index}", cpu="1") for index in range(12)))

    pods = [await play.bound(f"p{index}") for index in range(12)]

    counts: dict[str, int] = dict.fromkeys(NODES, 0)
    for pod in pods:
        counts[pod["spec"]["nodeName"]] += 1
    assert dict.fromkeys(NODES, 4) == counts


async def test_all_nodes_are_shown(play: Stage, cleanup: list[str]) -> None:
    """With percentageOfNodesToScore 100 an extender gets all of 130 Nodes."""
    label = {"crowd": play.api.namespace}
    names = [f"{play.api.namespace}-{index}" for index in range(130)]
    cleanup += [f"/api/v1/nodes/{name}" for name in names]
    await asyncio.gather(*(play.api.create("/api/v1/nodes", a_node(name, labels=label)) for name in names))
    play.gpu.room = False

    async def all_shown() -> bool:
        with contextlib.suppress(IndexError):
            return set(names) == set(play.gpu.of("filter")[-1].body["NodeNames"])
        return False

    await play.make("p", containers=limits(**{"conformance.test/gpu": 1}), nodeSelector=label)
    await eventually(all_shown, seconds=30)
