"""The scheduler over its sockets: kube-scheduler's calls on one side, an API server on the other."""

import asyncio
import json
import re
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from hami_scheduler import __version__
from hami_scheduler.serve import context
from hami_scheduler.serve.kube import api as kube
from hami_scheduler.serve.listen import http
from hami_scheduler.serve.listen.http import BODY_LIMIT_BYTES
from hami_scheduler.state.reservation import RESERVATION_SECONDS, Stage
from hamicommon.model import Object
from testbed.waiting import eventually

from ..support.api_server import ApiServer
from ..support.builders import VECTORS, a_container, a_device, a_node, a_pod, promise_of
from ..support.service import Running, running

PROGRAM = Path(sys.executable).with_name("hami-scheduler")
SHARE = "GPU-a,NVIDIA,1000,0:;"


async def test_pod_is_placed_with_one_write(scheduler: Running) -> None:
    """Asking writes nothing; binding is one Binding that carries everything, and one Event."""
    pod = scheduler.api.pod("p")

    answer = await scheduler.filter(pod, "exact", "ghost")
    assert [] == scheduler.api.writes
    assert (["exact"], None, "") == (answer["NodeNames"], answer["FailedNodes"], answer["Error"])

    assert "" == await scheduler.bind(pod, "exact")
    bound = scheduler.api.pod("p")
    annotations = bound["metadata"]["annotations"]
    assert "exact" == bound["spec"]["nodeName"]
    assert SHARE == annotations["hami.io/vgpu-devices-allocated"] == annotations["hami.io/vgpu-devices-to-allocate"]
    assert ("exact", "allocating") == (annotations["hami.io/vgpu-node"], annotations["hami.io/bind-phase"])
    assert annotations["hami.io/vgpu-time"].isdigit()
    assert annotations["hami.io/bind-time"].isdigit()
    assert 1 == len(scheduler.api.writes)
    await eventually(lambda: scheduler.api.events)
    assert ["BindingSucceed"] == [event["reason"] for event in scheduler.api.events]
    assert "Successfully binding node [exact] to default/p" == scheduler.api.events[0]["message"]


async def test_reservation_holds_until_the_pod_is_seen_bound(scheduler: Running) -> None:
    """Between the answer and the watch event nobody else gets the room, and then it is counted once."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    scheduler.api.is_silent = True
    await scheduler.bind(pod, "exact")

    assert 1000 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").memory_mib
    assert Stage.WRITTEN is scheduler.cluster.reservations.get("uid-p").stage
    scheduler.api.is_silent = False
    scheduler.api.put("pods", scheduler.api.pod("p"))
    await eventually(lambda: not len(scheduler.cluster.reservations))
    assert 1000 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").memory_mib


async def test_rejection_by_a_kubelet_is_seen_and_told(scheduler: Running) -> None:
    """The watch has Pods that ended; the Node waits, the next Pod's Event says so, and a metric counts it."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    await scheduler.bind(pod, "exact")
    message = "Pod was rejected: Allocate failed due to requested number of devices unavailable for nvidia.com/gpu"
    ended = {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": message}
    scheduler.api.put("pods", {**scheduler.api.pod("p"), "status": ended})
    await eventually(lambda: scheduler.cluster.kubelet_rejections)

    answer = await scheduler.filter(a_pod("next"), "exact")
    assert {"exact": "NodeInsufficientDevice"} == answer["FailedNodes"]
    await eventually(lambda: [event for event in scheduler.api.events if "it rejected a Pod" in event["message"]])
    _, text = await scheduler.get(scheduler.metrics_url + "/metrics")
    assert "hami_scheduler_kubelet_rejections_total 1.0" in text


async def test_pod_deleted_by_force_is_seen_from_its_end(scheduler: Running) -> None:
    """A Pod whose object goes without an end holds its replica; one that has ended does not."""
    ledger = scheduler.cluster.ledger
    for name in ("ended", "forced"):
        scheduler.api.put("pods", a_pod(name, node="exact", allocated=SHARE, phase="Running"))
    await eventually(lambda: ledger.grant("uid-ended") and ledger.grant("uid-forced"))
    scheduler.api.put("pods", a_pod("ended", node="exact", allocated=SHARE, phase="Succeeded"))
    for name in ("ended", "forced"):
        scheduler.api.remove("pods", f"default/{name}")
    await eventually(lambda: ledger.grant("uid-ended") is None and ledger.grant("uid-forced") is None)

    assert ["uid-forced ends"] == [grant.uid for grant in ledger.grants_on("exact")]


async def test_deleted_pod_does_not_count_as_waiting(scheduler: Running) -> None:
    """A refused Pod is in the metric of waiting Pods until it is deleted, and not for ten minutes more."""
    pod = a_pod("large", a_container(gpu=1, gpumem=99999))

    async def counts(number: int) -> bool:
        return (
            f"hami_scheduler_waiting_pods {number:.1f}" in (await scheduler.get(scheduler.metrics_url + "/metrics"))[1]
        )

    scheduler.api.put("pods", pod)
    await scheduler.filter(pod, "exact")
    await eventually(lambda: counts(1))
    scheduler.api.remove("pods", "default/large")
    await eventually(lambda: counts(0))


async def test_refusal_names_codes_only_and_the_event_has_the_numbers(scheduler: Running) -> None:
    """An amount in FailedNodes would make kube-scheduler ask again after every grant; the Event is written once."""
    pod = a_pod("big", a_container(gpu=1, gpumem=99999))
    for _ in range(3):
        answer = await scheduler.filter(pod, "exact", "ghost")

    assert None is answer["NodeNames"]
    assert {"exact": "1/1 CardInsufficientMemory", "ghost": "node unregistered"} == answer["FailedNodes"]
    await eventually(lambda: scheduler.api.events)
    await asyncio.sleep(0.05)
    [event] = scheduler.api.events
    assert ("FilteringFailed", "Warning") == (event["reason"], event["type"])
    assert "no available node, 2 nodes do not meet; 1 nodes CardInsufficientMemory(exact)" in event["message"]
    assert "1 lacks 99999 MiB on any NVIDIA device (best has 16384), 1 offers no device" in event["message"]


async def test_pod_that_asks_for_nothing_passes(scheduler: Running) -> None:
    """Whatever was sent comes back, in both forms, and its bind is plain."""
    pod = scheduler.api.put("pods", a_pod("plain", a_container()))
    nodes = {"metadata": {}, "items": [a_node("any")]}

    assert ["x", "y"] == (await scheduler.filter(pod, "x", "y"))["NodeNames"]
    assert nodes["items"] == (await scheduler.post("/filter", {"Pod": pod, "Nodes": nodes}))["Nodes"]["items"]
    assert "" == await scheduler.bind(pod, "exact")
    assert "exact" == scheduler.api.pod("plain")["spec"]["nodeName"]
    assert {} == scheduler.api.pod("plain")["metadata"]["annotations"]


async def test_nodes_that_exist_may_be_sent_whole(scheduler: Running) -> None:
    """A kube-scheduler with `nodeCacheCapable: false` gets its answer in kind, and a Node that has room."""
    for name, memory_mib in (("full", 1500), ("roomy", 9000)):
        node = a_node(name, a_device(f"GPU-{name}", memory_mib=memory_mib, finds_owners=True))
        scheduler.api.put("nodes", {**node, "metadata": {**node["metadata"], "uid": f"uid-{name}"}})
    scheduler.api.put("pods", a_pod("resident", node="full", allocated="GPU-full,NVIDIA,1000,0:;"))
    await eventually(lambda: scheduler.cluster.ledger.grant("uid-resident") is not None)
    nodes = [scheduler.api.objects["nodes"][name] for name in ("full", "roomy")]
    answer = await scheduler.post("/filter", {"Pod": scheduler.api.pod("p"), "Nodes": {"items": nodes}})

    assert nodes[1:] == answer["Nodes"]["items"]
    assert answer["NodeNames"] is None
    assert "" == await scheduler.bind(scheduler.api.pod("p"), "roomy")
    refused = await scheduler.post("/filter", {"Pod": a_pod("q"), "Nodes": {"items": nodes[:1]}})
    assert {"full": "1/1 CardInsufficientMemory"} == refused["FailedNodes"]


async def test_node_objects_are_judged_as_if_idle(scheduler: Running) -> None:
    """The simulation of an autoscaler sees no usage and reserves nothing; one such Node among others makes it one."""
    nodes = {"items": [a_node("new", a_device("GPU-n", memory_mib=2000)), a_node("small", a_device(memory_mib=10))]}
    answer = await scheduler.post("/filter", {"pod": scheduler.api.pod("p"), "nodes": nodes})

    assert ["new"] == [node["metadata"]["name"] for node in answer["Nodes"]["items"]]
    assert {"small": "1/1 CardInsufficientMemory"} == answer["FailedNodes"]
    assert 0 == len(scheduler.cluster.reservations)


@pytest.mark.parametrize(
    ("path", "body", "text"),
    [
        pytest.param("/filter", b"", "EOF", id="empty"),
        pytest.param("/filter", b"{", "must be JSON", id="broken"),
        pytest.param("/filter", b"[]", "JSON object", id="no object"),
        pytest.param("/filter", b'{"Pod":1}', "Pod must be", id="no Pod"),
        pytest.param("/filter", b'{"Pod":{},"NodeNames":[1]}', "NodeNames", id="names that are none"),
        pytest.param("/filter", b'{"Pod":{},"Nodes":[]}', "NodeList", id="nodes that are none"),
        pytest.param("/filter", b'{"Pod":{},"Nodes":{"items":[1]}}', "NodeList", id="items that are none"),
        pytest.param("/bind", b'{"PodName":"p"}', "needs PodName", id="no Node"),
        pytest.param("/bind", b'{"PodName":1,"PodNamespace":"d","PodUID":"u","Node":"n"}', "needs", id="no text"),
    ],
)
async def test_malformed_call_is_answered_with_what_is_wrong(
    scheduler: Running, path: str, body: bytes, text: str
) -> None:
    """HTTP 200 with the problem in Error, as HAMi answers."""
    assert text in (await scheduler.post(path, body))["Error"]


async def outcomes(scheduler: Running, verb: str) -> dict[str, float]:
    """Return how many calls of *verb* ended how, those that none did left out."""
    _, text = await scheduler.get(scheduler.metrics_url + "/metrics")
    found = re.findall(rf'^hami_scheduler_{verb}_seconds_count{{outcome="(\w+)"}} (\S+)$', text, re.MULTILINE)
    return {outcome: float(count) for outcome, count in found if float(count)}


async def test_pod_that_is_not_bound_counts_as_an_error(scheduler: Running) -> None:
    """Which is what an alert asks for; a Pod that fits nowhere is a decision."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    scheduler.api.fail("/binding", 403)
    assert "" != await scheduler.bind(pod, "exact")
    await scheduler.filter(pod, "exact")
    assert "" == await scheduler.bind(pod, "exact")
    await scheduler.filter(a_pod("big", a_container(gpu=1, gpumem=99999)), "exact")

    assert {"ok": 1, "error": 1} == await outcomes(scheduler, "bind")
    assert {"ok": 2, "refused": 1} == await outcomes(scheduler, "filter")


@pytest.mark.parametrize("verb", ["filter", "bind", "prioritize", "preempt"])
async def test_call_whose_body_cannot_be_read_is_answered_and_counted(scheduler: Running, verb: str) -> None:
    """In the body where there is a place for it, and as an error also where the caller hung up, or we failed."""
    headers = {"Content-Encoding": "gzip"}
    async with scheduler.session.post(f"{scheduler.url}/{verb}", data=b"{}", headers=headers) as answer:
        text = await answer.text()
    assert "Content-Encoding: must be identity, not gzip" in text
    assert (200 if verb in {"filter", "bind"} else 415) == answer.status

    _, writer = await asyncio.open_connection("127.0.0.1", int(scheduler.url.rpartition(":")[2]))
    writer.write(f"POST /{verb} HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\n{{".encode())
    await asyncio.sleep(0.05)
    writer.close()
    async with asyncio.timeout(15):
        while await outcomes(scheduler, verb) != {"error": 2}:  # noqa: ASYNC110 - it has no event of its own
            await asyncio.sleep(0.01)


async def test_call_that_fails_by_our_bug_is_counted(scheduler: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call is counted, even if the handler raises."""
    monkeypatch.setattr(http, "filter_pod", lambda *_: 1 / 0)
    body = json.dumps({"Pod": scheduler.api.pod("p"), "NodeNames": ["exact"]}).encode()
    async with scheduler.session.post(scheduler.url + "/filter", data=body) as answer:
        assert 500 == answer.status

    assert {"error": 1} == await outcomes(scheduler, "filter")


@pytest.mark.parametrize("fault", ["late", "lost"])
async def test_binding_without_an_answer_is_looked_up(scheduler: Running, fault: str) -> None:
    """Whether it arrived is read from the Pod; if it did not, it is written once more."""
    scheduler.api.fail("/binding", fault)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")

    assert "" == await scheduler.bind(pod, "exact")
    assert "exact" == scheduler.api.pod("p")["spec"]["nodeName"]


async def test_binding_without_an_answer_is_settled_at_once(scheduler: Running) -> None:
    """A fence shows that it did not happen and cannot happen any more, so its devices are free."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    scheduler.api.fail("/binding", "lost", "lost")

    assert "" != await scheduler.bind(pod, "exact")
    assert 0 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas
    assert pod["metadata"]["resourceVersion"] != scheduler.api.pod("p")["metadata"]["resourceVersion"]
    assert ["exact"] == (await scheduler.filter(scheduler.api.pod("p"), "exact"))["NodeNames"]
    assert "" == await scheduler.bind(pod, "exact")


async def test_pod_bound_after_all_is_not_decided_again(scheduler: Running) -> None:
    """A Pod whose open Binding arrived is read until that is known."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    scheduler.api.is_silent = True
    scheduler.api.fail("/binding", "late")
    scheduler.api.fail("/pods/p", "lost", "lost")  # the client library itself repeats a read once

    assert "" != await scheduler.bind(pod, "exact")

    async def answer() -> bool:
        return "is bound to node exact already" in (await scheduler.filter(pod, "exact"))["Error"]

    await eventually(answer)
    assert 1 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas


async def test_devices_stay_reserved_for_as_long_as_the_outcome_of_a_bind_is_unknown(scheduler: Running) -> None:
    """No time frees them. Once a fence is answered they are free."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    scheduler.api.fail("/binding", "lost")
    scheduler.api.fail("/status", *[403] * 100)

    assert "may be bound" in await scheduler.bind(pod, "exact")
    assert "may still take effect" in (await scheduler.filter(pod, "exact"))["Error"]
    assert "may still take effect" in await scheduler.bind(pod, "exact")
    scheduler.cluster.expire(scheduler.service.context.clock.steady() + 10 * RESERVATION_SECONDS)
    assert 1 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas

    scheduler.api.faults.clear()
    await eventually(lambda: promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas == 0)


async def test_pod_that_another_changed_is_bound_without_another_filter(scheduler: Running) -> None:
    """kube-scheduler writes its status between filter and bind; the Binding is sent again with the new version."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    scheduler.api.put("pods", {**pod, "status": {**pod["status"], "nominatedNodeName": "exact"}})

    assert "" == await scheduler.bind(pod, "exact")
    assert 2 == len(scheduler.api.writes_to("/binding"))


async def test_pod_that_asks_for_something_else_now_is_decided_again(scheduler: Running) -> None:
    """Its devices were chosen by annotations that it no longer has."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    annotations = {**pod["metadata"]["annotations"], "nvidia.com/use-gpuuuid": "GPU-x"}
    scheduler.api.put("pods", {**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    assert "was changed after its devices were chosen" in await scheduler.bind(pod, "exact")
    assert 0 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas


async def test_bind_after_a_restart_decides_for_that_node(scheduler: Running) -> None:
    """Without a reservation the devices are chosen on exactly the Node that was asked for."""
    pod = scheduler.api.pod("p")

    assert "" == await scheduler.bind(pod, "exact")
    assert SHARE == scheduler.api.pod("p")["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]


async def test_bind_without_a_uid_is_of_the_pod_of_that_name(scheduler: Running) -> None:
    """Kube-scheduler always names it; whoever does not gets a Pod bound, and no status 500."""
    answer = await scheduler.post("/bind", {"PodName": "p", "PodNamespace": "default", "Node": "exact"})

    assert "" == answer["Error"]
    assert SHARE == scheduler.api.pod("p")["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]


@pytest.mark.parametrize(
    ("name", "uid", "node", "text"),
    [
        pytest.param("nobody", "u", "exact", "does not exist", id="no such Pod"),
        pytest.param("p", "other-uid", "exact", "does not exist", id="another Pod of that name"),
        pytest.param("big", "uid-big", "exact", "CardInsufficientMemory", id="no room"),
        pytest.param("p", "uid-p", "ghost", "node unregistered", id="no such Node"),
        pytest.param("odd", "uid-odd", "exact", "device-scoring-weights", id="unreadable weights"),
        pytest.param("bound", "uid-bound", "exact", "already bound to node elsewhere", id="bound elsewhere"),
    ],
)
async def test_bind_that_cannot_be_decided_says_why(
    scheduler: Running, name: str, uid: str, node: str, text: str
) -> None:
    """Nothing is written, and kube-scheduler asks again."""
    scheduler.api.put("pods", a_pod("big", a_container(gpu=1, gpumem=99999)))
    scheduler.api.put("pods", a_pod("odd", annotations={"hami.io/device-scoring-weights": "x"}))
    scheduler.api.put("pods", a_pod("bound", node="elsewhere"))
    pod = {"metadata": {"name": name, "namespace": "default", "uid": uid}}

    assert text in await scheduler.bind(pod, node)
    assert [] == scheduler.api.writes


async def test_bind_is_refused_when_another_scheduler_took_the_room(scheduler: Running) -> None:
    """The promise cannot be kept any more; it is given back, and the Pod is filtered again."""
    pod = scheduler.api.put("pods", a_pod("large", a_container(gpu=1, gpumem=10000)))
    await scheduler.filter(pod, "exact")
    scheduler.api.put("pods", a_pod("foreign", node="exact", allocated="GPU-a,NVIDIA,8000,0:;"))
    await eventually(lambda: promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas == 2)

    assert "device GPU-a is short of 0 replicas, 1616 MiB" in await scheduler.bind(pod, "exact")
    assert [] == scheduler.api.writes
    assert 8000 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").memory_mib


async def test_bind_is_refused_when_the_pod_was_replaced(scheduler: Running) -> None:
    """A Pod of the same name is another Pod: the Binding carries the uid."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    scheduler.api.is_silent = True
    scheduler.api.put("pods", a_pod("p", uid="second"))

    assert "Precondition failed" in await scheduler.bind(pod, "exact")
    assert 0 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas


async def test_second_bind_of_a_bound_pod_is_no_error(scheduler: Running) -> None:
    """kube-scheduler may repeat a call whose answer it lost."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    assert "" == await scheduler.bind(pod, "exact")
    await eventually(lambda: not len(scheduler.cluster.reservations))

    assert "" == await scheduler.bind(pod, "exact")
    assert 1 == len(scheduler.api.writes)
    assert "is bound to node exact already" in (await scheduler.filter(pod, "exact"))["Error"]


async def test_two_binds_of_one_pod_at_once_make_one_binding(scheduler: Running) -> None:
    """The second finds the first in progress."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")

    errors = await asyncio.gather(scheduler.bind(pod, "exact"), scheduler.bind(pod, "exact"))

    assert "" in errors
    assert 1 == len(scheduler.api.writes_to("/binding"))


async def test_two_binds_without_a_reservation_make_one_binding(scheduler: Running) -> None:
    """After a restart, too, the second finds the first in progress, and the share is counted once."""
    pod = scheduler.api.pod("p")

    errors = await asyncio.gather(scheduler.bind(pod, "exact"), scheduler.bind(pod, "exact"))

    assert "" in errors
    assert 1 == len(scheduler.api.writes_to("/binding"))
    assert 1000 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").memory_mib


async def test_filter_during_a_bind_waits_for_nothing_and_decides_nothing(scheduler: Running) -> None:
    """A Pod whose Binding is being written is not given another Node."""
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")
    scheduler.cluster.reservations.begin_bind("uid-p")

    assert "is in progress" in (await scheduler.filter(pod, "exact"))["Error"]


async def test_deleted_pod_gives_its_reservation_back(scheduler: Running) -> None:
    """The watch reports the deletion, and the devices are free."""
    await scheduler.filter(scheduler.api.pod("p"), "exact")
    scheduler.api.remove("pods", "default/p")

    await eventually(lambda: not len(scheduler.cluster.reservations))
    assert 0 == promise_of(scheduler.cluster.ledger, "exact", "GPU-a").replicas


async def test_nothing_is_decided_before_everything_is_known(
    api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the first lists have arrived `/readyz` says no, a filter waits, and then says it could not."""
    monkeypatch.setattr(context, "READY_SECONDS", 0.2)
    api.is_mute = True
    async with running(api, tmp_path, is_synced=False) as scheduler:
        pod = api.pod("p")

        assert 503 == (await scheduler.get(scheduler.url + "/readyz"))[0]
        assert "first list of" in (await scheduler.filter(pod, "exact"))["Error"]
        assert "first list of" in await scheduler.bind(pod, "exact")
        asked = asyncio.create_task(scheduler.filter(pod, "exact"))
        api.is_mute = False
        assert ["exact"] == (await asked)["NodeNames"]
        assert 200 == (await scheduler.get(scheduler.url + "/readyz"))[0]


async def test_replica_that_waits_for_the_lease_is_ready(api: ApiServer, tmp_path: Path) -> None:
    """A rolling update ends the replica that holds it only when the next one is ready."""
    api.put("leases", {"metadata": {"name": "hami", "namespace": "kube-system"}, "spec": {"holderIdentity": "other_1"}})
    settings = {"must_lead": True, "lease_name": "hami", "lease_namespace": "kube-system", "hostname": "here"}
    async with running(api, tmp_path, is_synced=False, **settings) as scheduler:
        await eventually(lambda: scheduler.service.readiness.unsynced() is None)

        assert 200 == (await scheduler.get(scheduler.url + "/readyz"))[0]
        assert "does not hold the lease" in str(scheduler.service.takeover.blocked())


async def test_only_the_leader_decides(api: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While another host's kube-scheduler holds the Lease, this one refuses; it takes over with the Lease."""
    monkeypatch.setattr(context, "READY_SECONDS", 0.1)
    lease = {"metadata": {"name": "hami", "namespace": "kube-system"}, "spec": {"holderIdentity": "other_1"}}
    api.put("leases", lease)
    settings = {"must_lead": True, "lease_name": "hami", "lease_namespace": "kube-system", "hostname": "here"}
    async with running(api, tmp_path, is_synced=False, **settings) as scheduler:
        assert "does not hold the lease hami" in (await scheduler.filter(api.pod("p"), "exact"))["Error"]
        api.put("leases", {**lease, "spec": {"holderIdentity": "here_2", "leaseDurationSeconds": 15}})
        await eventually(lambda: scheduler.service.takeover.blocked() is None)
        assert ["exact"] == (await scheduler.filter(api.pod("p"), "exact"))["NodeNames"]
        api.remove("leases", "kube-system/hami")
        await eventually(lambda: scheduler.service.takeover.blocked() is not None)


async def test_only_the_leader_exports_what_is_the_clusters(api: ApiServer, tmp_path: Path) -> None:
    """Two replicas would double the cluster in every sum and dashboard."""
    held: Object = {"holderIdentity": "one_1", "leaseDurationSeconds": 3600}
    api.put("leases", {"metadata": {"name": "hami", "namespace": "kube-system"}, "spec": held})
    api.put("pods", a_pod("bound", node="exact", allocated="GPU-a,NVIDIA,1000,30:;"))
    hard = {"limits.nvidia.com/gpumem": "5000"}
    api.put("resourcequotas", {"metadata": {"name": "q", "namespace": "default"}, "spec": {"hard": hard}})
    settings: Object = {
        "must_lead": True,
        "lease_name": "hami",
        "lease_namespace": "kube-system",
        "has_legacy_metrics": True,
    }
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    async with (
        running(api, folders[0], hostname="one", **settings) as leader,
        running(api, folders[1], hostname="two", is_synced=False, **settings) as standby,
    ):
        await eventually(lambda: standby.service.readiness.unsynced() is None)
        (_, of_leader), (_, of_standby) = [
            await scheduler.get(scheduler.metrics_url + "/metrics") for scheduler in (leader, standby)
        ]

    of_cluster = {
        name for name in series(of_leader) if not name.startswith(("hami_scheduler_", "hami_device_config", "process_"))
    }
    sums = {f"hami_scheduler_{name}" for name in ("devices", "shares", "memory_bytes", "core_ratio")}
    assert {"hami_gpu_shared_count", "hami_vgpu_memory_allocated_bytes", "QuotaUsed"} <= of_cluster
    assert sums <= series(of_leader)
    assert {"hami_build_info"} == series(of_standby) & (of_cluster | sums)
    assert "hami_scheduler_leader 1.0" in of_leader
    assert "hami_scheduler_leader 0.0" in of_standby


def series(text: str) -> set[str]:
    """Return the names in a scrape."""
    return {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")}


async def test_health_and_version_are_served(scheduler: Running) -> None:
    """The chart's probes ask for these."""
    for path in ("/livez", "/healthz", "/readyz"):
        assert 200 == (await scheduler.get(scheduler.url + path))[0]
    assert __version__ in (await scheduler.get(scheduler.url + "/version"))[1]


async def test_lost_events_are_counted_and_nothing_waits_for_them(scheduler: Running) -> None:
    """An API server that takes no Events does not keep Pods from running."""
    scheduler.api.fail("/events", 403)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "exact")

    assert "" == await scheduler.bind(pod, "exact")
    await eventually(lambda: scheduler.service.api.events_lost == 1)


async def test_a_warning_stands_back_for_binds_but_not_for_long(scheduler: Running) -> None:
    """Events wait while a Binding is written; a warning waits at most a second."""
    async with a_slow_bind(scheduler):
        scheduler.service.api.queue_event(scheduler.api.pod("p"), "Placed", "while binding", is_warning=False)
        scheduler.service.api.queue_event(scheduler.api.pod("p"), "Refused", "while binding", is_warning=True)

        await asyncio.sleep(kube.WARNING_PATIENCE_SECONDS / 2)
        assert [] == scheduler.api.events
        await eventually(lambda: scheduler.api.events)
        assert ["Refused"] == [event["reason"] for event in scheduler.api.events]

    await eventually(lambda: len(scheduler.api.events) == 3)


async def test_a_success_is_written_even_if_binds_never_end(
    scheduler: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate of a burst is worth waiting for, but none lasts for ever."""
    monkeypatch.setattr(kube, "SUCCESS_PATIENCE_SECONDS", 0.2)

    async with a_slow_bind(scheduler):
        scheduler.service.api.queue_event(scheduler.api.pod("p"), "Placed", "while binding", is_warning=False)
        await eventually(lambda: ["Placed"] == [event["reason"] for event in scheduler.api.events])


@asynccontextmanager
async def a_slow_bind(scheduler: Running) -> AsyncIterator[None]:
    """Keep a Binding from being answered for the length of a block."""
    scheduler.api.is_slow_to_bind = True
    bind = asyncio.create_task(scheduler.bind(scheduler.api.pod("p"), "exact"))
    await eventually(lambda: scheduler.service.api._binds._running > 0)
    yield
    assert not bind.done()
    scheduler.api.is_slow_to_bind = False
    assert "" == await bind


async def test_failures_after_the_binding_do_not_fail_the_bind(scheduler: Running) -> None:
    """The Pod is bound; a label that cannot be written is logged."""
    scheduler.api.fail("/pods/p", 403)
    pod = scheduler.api.pod("p")
    await scheduler.filter(pod, "locked")

    assert "" == await scheduler.bind(pod, "locked")
    assert "labels" not in scheduler.api.pod("p")["metadata"]


async def test_body_beyond_the_limit_is_an_error_that_says_what_to_do(scheduler: Running) -> None:
    """Sending Node objects is what makes bodies large."""
    answer = await scheduler.post("/filter", b" " * (BODY_LIMIT_BYTES + 1))

    assert "set nodeCacheCapable: true" in answer["Error"]


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        pytest.param(["--version"], 0, "hami-scheduler 0.", id="version"),
        pytest.param([], 1, "--device-config-file: is required", id="no settings"),
        pytest.param(["--device-config-file=/nowhere.yaml"], 1, "/nowhere.yaml: No such file", id="no such file"),
        pytest.param(["--no-such-flag"], 2, "unknown flag", id="unknown flag"),
    ],
)
async def test_process_that_cannot_start_says_why(arguments: list[str], code: int, text: str) -> None:
    """One line and an exit code."""
    process = await asyncio.create_subprocess_exec(PROGRAM, *arguments, stdout=PIPE, stderr=STDOUT)
    output, _ = await process.communicate()

    assert (code, True, 1) == (process.returncode, text in output.decode(), output.count(b"\n")), output


async def test_process_serves_and_drains_on_sigterm(api: ApiServer, tmp_path: Path) -> None:
    """From start to stop as its container runs it."""
    process = await asyncio.create_subprocess_exec(
        *(PROGRAM, f"--kubeconfig={api.kubeconfig(tmp_path)}"),
        f"--device-config-file={VECTORS / 'device-config-default.yaml'}",
        *("--http_bind=127.0.0.1:0", "--metrics-bind-address=127.0.0.1:0"),
        stdout=PIPE,
        stderr=STDOUT,
    )
    assert process.stdout is not None
    line: Object = {}
    async with asyncio.timeout(20):
        while "port" not in line:
            line = json.loads(await process.stdout.readline())
    async with aiohttp.ClientSession() as session, asyncio.timeout(10):
        url = f"http://127.0.0.1:{line['port']}/readyz"
        while (await session.get(url)).status != 200:  # noqa: ASYNC110 - another process becomes ready
            await asyncio.sleep(0.02)
    process.terminate()

    assert 0 == await asyncio.wait_for(process.wait(), 15)
