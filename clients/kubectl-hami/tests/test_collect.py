"""
Reading goes on where something cannot be read.
"""

from typing import Any

import orjson
import pytest

from kubectl_hami.read.collect import collect
from kubectl_hami.read.source import ReadError

from .builders import a_device, a_node, a_pod
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
    assert any("only the Pods of mine count" in problem for problem in cluster.problems)
    with pytest.raises(ReadError, match="with -n NAMESPACE only its Pods are read"):
        collect(source)


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
