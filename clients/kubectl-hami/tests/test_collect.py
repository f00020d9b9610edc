"""
Reading goes on where something cannot be read.
"""

import time
from collections.abc import Callable
from threading import Event
from typing import Any

import orjson
import pytest

from kubectl_hami.read.collect import collect, collect_pods, events, examine
from kubectl_hami.read.source import ReadError
from kubectl_hami.values.cluster import ClusterSnapshot

from .builders import a_device, a_node, a_pod, a_refusal
from .fakes import FakeSource, a_service

FORBIDDEN = ReadError("/api/v1/pods", 'pods is forbidden: User "u" cannot list resource "pods"', 403)


def a_monitor(node: str = "n1") -> dict[str, Any]:
    """Return the monitor's Pod on a Node."""
    return a_service("monitor", f"monitor-{node}", node, metrics=9394)


def test_monitors_are_asked_through_the_proxy_of_their_pods() -> None:
    """The port is found by its name."""
    source = FakeSource(
        {
            "/api/v1/nodes": {"items": [a_node("n1", a_device())]},
            "/api/v1/pods": {"items": [a_monitor()]},
            "/api/v1/events": {"items": []},
            "/api/v1/namespaces/hami/pods/monitor-n1:9394/proxy/metrics": b"x 1\n",
        }
    )

    cluster = collect(source)

    assert {"n1": b"x 1\n"} == cluster.monitors
    assert () == cluster.problems


def test_monitor_that_does_not_answer_is_one_sentence() -> None:
    """The rest is still shown."""
    source = FakeSource(
        {
            "/api/v1/nodes": {"items": []},
            "/api/v1/pods": {"items": [a_monitor(f"n{number}") for number in range(9)]},
            "/api/v1/events": {"items": []},
        }
    )

    [problem] = collect(source).problems

    assert problem.startswith("use is unknown on n0, n1, n2 and 6 more: ")


def test_services_are_asked_side_by_side_within_one_time() -> None:
    """However many of them hang."""
    hung = Event()

    class Hanging(FakeSource):
        patience_seconds = 0.3

        def get(self, path: str) -> bytes:
            if path.endswith("/proxy/metrics") and "n7" not in path:
                hung.wait(20)
            return super().get(path)

    source = Hanging(
        {
            "/api/v1/nodes": {"items": []},
            "/api/v1/pods": {"items": [a_monitor(f"n{number}") for number in range(9)]},
            "/api/v1/events": {"items": []},
            "/api/v1/namespaces/hami/pods/monitor-n7:9394/proxy/metrics": b"x 1\n",
        }
    )
    began = time.monotonic()
    try:
        cluster = collect(source)
    finally:
        hung.set()

    assert time.monotonic() - began < 5
    assert {"n7": b"x 1\n"} == cluster.monitors
    assert ("use is unknown on n0, n1, n2 and 5 more: hami/monitor-n0: no answer within 0.3 s",) == cluster.problems


def test_service_that_is_replaced_is_not_examined() -> None:
    """An evicted Pod stays for days, and another one has its place."""
    gone, leaving = a_monitor("n1"), a_monitor("n2")
    gone["status"]["phase"] = "Failed"
    leaving["metadata"]["deletionTimestamp"] = "2026-11-25T12:00:00Z"
    pods = {"items": [gone, leaving, a_monitor("n3")]}

    examined = examine(FakeSource({"/api/v1/pods": pods}))

    assert ["hami/monitor-n3"] == [service.name for service in examined.services]


def test_examination_tells_forbidden_from_silent_and_knows_how_many_should_be_there() -> None:
    """A cluster without workloads of ours is no problem, one whose workloads nobody may read is."""
    metrics = "/api/v1/namespaces/hami/pods/{}:9394/proxy/metrics"
    daemon_set = {"metadata": {"labels": {"app.kubernetes.io/component": "hami-monitor"}}}
    answers = {
        "/api/v1/pods": {"items": [a_monitor("n1"), a_monitor("n2")]},
        metrics.format("monitor-n1"): ReadError("", "pods/proxy is forbidden", 403),
        "/apis/apps/v1/daemonsets": {"items": [daemon_set]},
        "/apis/apps/v1/deployments": FORBIDDEN,
    }

    examined = examine(FakeSource(answers))

    assert [True, False] == [service.is_forbidden for service in examined.services]
    assert (daemon_set,) == examined.workloads
    assert str(FORBIDDEN) in examined.cluster.problems
    assert not any("daemonsets" in problem for problem in examine(FakeSource({"/api/v1/pods": {}})).cluster.problems)


def test_without_the_right_to_list_all_pods_those_of_the_namespace_are_read() -> None:
    """And the sentence says what is missing."""
    source = FakeSource(
        {
            "/api/v1/nodes": {"items": []},
            "/api/v1/pods": FORBIDDEN,
            "/api/v1/namespaces/mine/pods": {"items": [a_pod()]},
            "/api/v1/events": {"items": []},
        }
    )

    cluster = collect(source, "mine")

    assert 1 == len(cluster.pods)
    assert (f"{FORBIDDEN}; only the Pods of mine count, and use is unknown",) == cluster.problems
    with pytest.raises(ReadError, match="with -n NAMESPACE only its Pods are read"):
        collect(source)


@pytest.mark.parametrize("read", [collect, collect_pods])
def test_events_of_a_namespace_are_enough_without_more_rights(read: Callable[..., ClusterSnapshot]) -> None:
    """They say why a Pod of it waits."""
    events = ReadError("/api/v1/events", "forbidden", 403)
    answers = {
        "/api/v1/nodes": {"items": []},
        "/api/v1/pods": {"items": []},
        "/api/v1/events": events,
        "/api/v1/namespaces/mine/events": {"items": [a_refusal()]},
    }

    assert (a_refusal(),) == read(FakeSource(answers), "mine").refusals
    assert str(events) not in read(FakeSource(answers), "mine").problems
    assert str(events) in read(FakeSource(answers)).problems


def test_quotas_of_a_namespace_are_enough_without_more_rights() -> None:
    """A tenant asks what is left of their own."""
    quota = {"metadata": {"namespace": "mine", "name": "quota"}}
    answers = {
        "/api/v1/pods": {"items": []},
        "/api/v1/resourcequotas": ReadError("/api/v1/resourcequotas", "forbidden", 403),
        "/api/v1/namespaces/mine/resourcequotas": {"items": [quota]},
    }

    assert (quota,) == collect(FakeSource(answers), "mine", with_quotas=True).quotas
    denied = collect(FakeSource(answers), with_quotas=True)
    assert ((), True) == (denied.quotas, "/api/v1/resourcequotas: forbidden; quotas are unknown" in denied.problems)
    assert () == collect(FakeSource(answers), "mine").quotas


EVENTS, PODS = "/api/v1/namespaces/default/events", "/api/v1/namespaces/default/pods"


def test_events_are_those_of_the_pod_and_of_no_earlier_one_of_its_name() -> None:
    """A StatefulSet gives its Pods the same names again and again."""
    now, before = a_refusal(message="now"), a_refusal(message="before")
    before["involvedObject"]["uid"] = "uid-earlier"
    before["lastTimestamp"] = "2026-11-25T11:00:00Z"
    answers = {EVENTS: {"items": [before, now]}, PODS: {"items": [a_pod()]}}

    assert ["now"] == [event["message"] for event in events(FakeSource(answers), "default", "p")]
    answers[PODS] = {"items": []}
    assert ["now"] == [event["message"] for event in events(FakeSource(answers), "default", "p")]


def test_list_is_read_to_its_last_page() -> None:
    """Large clusters have several."""

    class Paged(FakeSource):
        def get(self, path: str) -> bytes:
            if path.startswith("/api/v1/pods"):
                is_last = "continue=more" in path
                more = {} if is_last else {"continue": "more"}
                return orjson.dumps({"items": [a_pod("q" if is_last else "p")], "metadata": more})
            return super().get(path)

    found = collect(Paged({"/api/v1/nodes": {"items": []}, "/api/v1/events": {"items": []}}))

    assert ["p", "q"] == [pod["metadata"]["name"] for pod in found.pods]
