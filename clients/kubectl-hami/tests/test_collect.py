"""
Reading goes on where something cannot be read.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
import pytest

from kubectl_hami.read.collect import collect
from kubectl_hami.read.source import Endpoint, ReadError

from .builders import NOW, a_device, a_node, a_pod

FORBIDDEN = ReadError("/api/v1/pods", 'pods is forbidden: User "u" cannot list resource "pods"', 403)


class FakeSource:
    """A cluster of recorded answers, by path without query; an error is raised."""

    name = "fake"

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers = answers

    def now(self) -> datetime:
        """Return a fixed moment."""
        return NOW

    def get(self, path: str) -> bytes:
        """Return the answer."""
        found = self.answers.get(path.partition("?")[0], ReadError(path, "there is no such thing", 404))
        if isinstance(found, ReadError):
            raise found
        return found if isinstance(found, bytes) else orjson.dumps(found)

    def ask(self, endpoint: Endpoint, path: str, body: bytes | None = None) -> bytes:
        """Refuse: nothing here asks a service."""
        raise ReadError(endpoint.pod, path)


def a_monitor(node: str = "n1") -> dict[str, Any]:
    """Return the monitor's Pod on a Node."""
    return {
        "metadata": {
            "namespace": "hami",
            "name": f"monitor-{node}",
            "labels": {"app.kubernetes.io/component": "hami-monitor"},
        },
        "spec": {
            "nodeName": node,
            "containers": [{"name": "monitor", "ports": [{"name": "metrics", "containerPort": 9394}]}],
        },
        "status": {"phase": "Running"},
    }


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

    seen = collect(source)

    assert {"n1": b"x 1\n"} == seen.monitors
    assert () == seen.problems


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

    seen = collect(source, "mine")

    assert 1 == len(seen.pods)
    assert any("only the Pods of mine count" in problem for problem in seen.problems)
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
