"""The arithmetic of ranking, in HAMi's own examples."""

import json
from typing import Any

import numpy as np
import pytest

from hami_scheduler.rules.score import device_order, device_score, node_scores, score_divisors
from hami_scheduler.search import filter as filter_module
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.values.policies import read_device_policy
from hamicommon.model import Request, ScoringWeights

from ..support.builders import a_cluster, a_container, a_device, a_node, a_pod, a_request, a_use

ROOM = {"count": 10, "core_percent": 4, "memory_mib": 8192, "promised": (2, 2048, 1)}


def test_score_of_a_device_is_how_full_it_is() -> None:
    """2 of 10 replicas, 1 of 4 cores and 2048 of 8192 MiB are 7 points."""
    assert 7.0 == device_score(a_use(**ROOM), (), ScoringWeights())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        pytest.param(Request("NVIDIA", 2, 1024, None, 1), 11.75, id="an amount"),
        pytest.param(Request("NVIDIA", 1, 0, 50, 0), 13.0, id="a percentage"),
    ],
)
def test_request_counts_where_the_device_is_registered_by_vendor(asked: Request, expected: float) -> None:
    """A device whose model is the vendor's key is scored with what is asked; one with a model name is not."""
    assert expected == device_score(a_use(type="NVIDIA", **ROOM), (asked,), ScoringWeights())  # type: ignore[arg-type]
    assert 7.0 == device_score(a_use(**ROOM), (asked,), ScoringWeights())  # type: ignore[arg-type]


def test_weights_scale_their_part() -> None:
    """Memory alone decides where the others weigh nothing."""
    assert 5.0 == device_score(a_use(**ROOM), (), ScoringWeights(slot=0, core=0, memory=2))  # type: ignore[arg-type]


def test_device_that_offers_nothing_of_a_kind_scores_nothing() -> None:
    """A total of 0 makes the whole score 0."""
    assert 0.0 == device_score(a_use(core_percent=0, promised=(1, 1000, 0)), (), ScoringWeights())


def test_mutex_comes_before_numa_binding() -> None:
    """A Pod with both tries the idle devices first, as in HAMi, whose policy does not look at NUMA nodes then."""
    uses = [a_use("GPU-a", numa=0), a_use("GPU-b", numa=1, promised=(1, 0, 0)), a_use("GPU-c", numa=0)]
    policy = read_device_policy("mutex", is_numa_bound=True)

    assert [1, 0, 2] == device_order(uses, [0.0, 0.0, 0.0], policy)


def test_score_of_a_node_is_how_full_its_devices_are_together() -> None:
    """Half of everything is 15 points; a Node without compute scores 0."""
    totals = np.array([[10, 8000, 100], [10, 8000, 0]])
    promised = np.array([[5, 4000, 50], [5, 4000, 0]])

    assert [15.0, 0.0] == node_scores(promised, score_divisors(totals)).tolist()


@pytest.mark.parametrize(("policy", "expected"), [("binpack", "busy"), ("spread", "idle"), ("weird", "busy")])
def test_node_policy_chooses_the_node(policy: str, expected: str) -> None:
    """`spread` wants the emptiest Node, everything else the fullest."""
    cluster = a_cluster(a_node("busy", a_device("GPU-b")), a_node("idle", a_device("GPU-i")))
    cluster.put_pod(a_pod("held", node="busy", allocated="GPU-b,NVIDIA,1000,10:;"))

    assert expected == filter_nodes(a_request(node=policy), ["busy", "idle"], cluster.view).node


def test_equal_nodes_are_chosen_by_name() -> None:
    """The same question always has the same answer, whatever the order of the candidates; HAMi's is random."""
    cluster = a_cluster(*(a_node(f"n{i}", a_device(f"GPU-{i}")) for i in (3, 1, 2)))

    assert "n1" == filter_nodes(a_request(), ["n3", "n2", "n1"], cluster.view).node


def test_next_best_node_is_tried_when_the_best_cannot() -> None:
    """What arrays cannot see, two containers that need one device's room, only refuses that Node."""
    nodes = [a_node("a", a_device("GPU-a")), a_node("b", a_device("GPU-b1"), a_device("GPU-b2"))]
    pod = a_pod("p", a_container("x", gpu=1, gpumem=9000), a_container("y", gpu=1, gpumem=9000))
    result = filter_nodes(a_request(pod), ["a", "b"], a_cluster(*nodes).view, explain_all=True)

    assert "b" == result.node
    assert {"a": "1/1 CardInsufficientMemory"} == result.refusal.failed_nodes


@pytest.mark.parametrize(
    ("policy", "resource", "count"),
    [
        ("binpack", "metax-tech.com/gpu", 2),
        ("spread", "metax-tech.com/gpu", 2),
        ("binpack", "kunlunxin.com/xpu", 1),
        ("spread", "kunlunxin.com/xpu", 1),
        ("binpack", "kunlunxin.com/xpu", 4),
    ],
)
def test_nodes_that_cannot_win_are_not_tried(
    policy: str, resource: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vendors that rate Nodes say what they would give at best, so that a large cluster costs a few tries."""
    tried: list[str] = []

    def counted(*given: Any) -> Any:
        tried.append(given[1])
        return try_node(*given)

    monkeypatch.setattr(filter_module, "try_node", counted)
    figures = ("metax-tech.com/gpu.topology.losses", "metax-tech.com/gpu.topology.scores")
    nodes = []
    for n in range(200):
        node = a_node(f"n{n:03}")
        node["metadata"]["annotations"] = dict.fromkeys(figures, json.dumps({str(count): n * 37 % 101}))
        node["status"] = {"capacity": {resource: "8"}, "allocatable": {resource: "8"}}
        nodes.append(node)
    container = {"name": "app", "resources": {"limits": {resource: str(count)}}}
    cluster = a_cluster(*nodes)

    result = filter_nodes(a_request(a_pod("p", container), node=policy), [f"n{n:03}" for n in range(200)], cluster.view)

    rated = [n * 37 % 101 for n in range(200)] if resource.startswith("metax") else [0]
    assert f"n{rated.index(min(rated) if policy == 'binpack' else max(rated)):03}" == result.node
    assert [result.node] == tried
