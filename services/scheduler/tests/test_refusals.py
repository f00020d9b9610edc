"""
What is remembered of Nodes that refused, or were the best, never hides a better one.
"""

import numpy as np
import pytest

from hami_scheduler.decide.filter import allowances_of, filter_nodes, foresee
from hami_scheduler.decide.memo import Refusals
from hami_scheduler.state.cluster import Cluster
from hamicommon.wire import keys

from .builders import a_cluster, a_container, a_device, a_grant, a_node, a_pod, a_request, a_share

REQUEST = a_request(a_pod("p", a_container(gpu=1, gpumem=6000)))
NAMES = [f"n{number:02}" for number in range(20)]


def a_full_cluster() -> Cluster:
    """Return nodes with one device each, promised whole."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}", memory_mib=10000)) for name in NAMES))
    for name in NAMES:
        cluster.reserve(a_grant(f"on-{name}", name, a_share(f"GPU-{name}", memory_mib=10000)), 0.0)
    return cluster


def chosen(cluster: Cluster, refusals: Refusals) -> str | None:
    """Return the Node that is chosen, which is the same without a memory."""
    found = filter_nodes(REQUEST, NAMES, cluster.view, refusals=refusals).node
    assert found == filter_nodes(REQUEST, NAMES, cluster.view).node
    return found


@pytest.mark.parametrize("freed", [NAMES[7:8], NAMES[5:]], ids=["one", "many"])
def test_room_that_appears_is_found(freed: list[str]) -> None:
    """Few Nodes that changed are tried, many are looked at all at once; of equal ones the first by name is taken."""
    cluster, refusals = a_full_cluster(), Refusals()
    assert None is chosen(cluster, refusals)

    for name in freed:
        cluster.unreserve(f"on-{name}")

    assert freed[0] == chosen(cluster, refusals)


def test_node_that_changed_and_is_still_full_is_tried_once() -> None:
    """It is the best liked of all, and the next one is chosen; until it changes again nobody looks at it."""
    cluster, refusals = a_full_cluster(), Refusals()
    cluster.unreserve("on-n03")
    assert "n03" == chosen(cluster, refusals)

    cluster.reserve(a_grant("small", "n05", a_share("GPU-n05", memory_mib=1)), 0.0)

    assert "n03" == chosen(cluster, refusals)
    known = refusals.known_for(REQUEST, allowances_of(REQUEST, cluster.quotas))
    assert ["n03"] == [NAMES[index] for index in np.flatnonzero(known.hopeful)]


def test_node_that_comes_is_tried_and_one_that_goes_is_not() -> None:
    """Its place in the arrays stays, and may be another's afterwards."""
    cluster, refusals = a_full_cluster(), Refusals()
    cluster.unreserve("on-n03")
    assert "n03" == chosen(cluster, refusals)

    cluster.drop_node({"metadata": {"name": "n03"}})
    assert None is chosen(cluster, refusals)

    cluster.put_node(a_node("n03", a_device("GPU-n03", memory_mib=20000)))
    assert "n03" == chosen(cluster, refusals)


def test_repaired_ledger_is_looked_at_anew() -> None:
    """What was refused by wrong sums is not believed once they are right."""
    cluster, refusals = a_cluster(a_node("n00", a_device("GPU-n00", memory_mib=10000))), Refusals()
    cluster.ledger.promised[0] = (0, 9000, 0)
    assert None is filter_nodes(REQUEST, NAMES, cluster.view, refusals=refusals).node

    assert 1 == cluster.recount()

    assert "n00" == chosen(cluster, refusals)


def test_the_same_nodes_refuse_for_reasons_that_are_worked_out_once() -> None:
    """kube-scheduler asks about one waiting Pod after another, and names the Nodes in any order."""
    cluster, refusals = a_full_cluster(), Refusals()
    first = filter_nodes(REQUEST, NAMES, cluster.view, refusals=refusals)

    again = filter_nodes(REQUEST, NAMES[::-1], cluster.view, refusals=refusals)

    assert again.failed_nodes is first.failed_nodes
    assert dict.fromkeys(NAMES, "1/1 CardInsufficientMemory") == again.failed_nodes


@pytest.mark.parametrize("names", [NAMES[5:], [*NAMES, "ghost"], [*NAMES[1:], NAMES[5]]])
def test_other_nodes_refuse_for_their_own_reasons(names: list[str]) -> None:
    """Fewer, more, and as many of which one is named twice."""
    cluster, refusals = a_full_cluster(), Refusals()
    filter_nodes(REQUEST, NAMES, cluster.view, refusals=refusals)

    found = filter_nodes(REQUEST, names, cluster.view, refusals=refusals)

    assert found == filter_nodes(REQUEST, names, cluster.view)
    assert set(names) == set(found.failed_nodes)


def test_a_node_that_changed_refuses_for_another_reason() -> None:
    """What was worked out before is not told again."""
    cluster, refusals = a_full_cluster(), Refusals()
    before = filter_nodes(REQUEST, NAMES, cluster.view, refusals=refusals)

    cluster.drop_node({"metadata": {"name": "n03"}})

    after = filter_nodes(REQUEST, NAMES, cluster.view, refusals=refusals)
    assert {**before.failed_nodes, "n03": "node unregistered"} == after.failed_nodes


def test_best_node_is_found_ahead_and_not_again() -> None:
    """Nobody looks at a Node when the question comes."""
    cluster, refusals = a_full_cluster(), Refusals()
    cluster.unreserve("on-n03")
    foresee(REQUEST, cluster.view, refusals)
    known = refusals.known_for(REQUEST, allowances_of(REQUEST, cluster.quotas))
    known.hopeful[:] = False

    assert "n03" == chosen(cluster, refusals)


@pytest.mark.parametrize(
    ("policy", "nodes"),
    [("binpack", ["n00", "n00", "n01", "n01", "n02"]), ("spread", ["n00", "n01", "n02", "n00", "n01"])],
)
def test_like_pods_one_after_another_get_what_each_would_alone(policy: str, nodes: list[str]) -> None:
    """The Node that got one is the best still under binpack, until it is full; under spread it is no more."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}", memory_mib=13000)) for name in NAMES[:3]))
    request = a_request(a_pod("p", a_container(gpu=1, gpumem=6000), annotations={keys.NODE_SCHEDULER_POLICY: policy}))
    refusals, found = Refusals(), []
    for number in range(len(nodes)):
        result = filter_nodes(request, NAMES, cluster.view, refusals=refusals)
        assert result == filter_nodes(request, NAMES, cluster.view)
        node = result.node or ""
        found.append(node)
        cluster.reserve(a_grant(f"p{number}", node, a_share(f"GPU-{node}", memory_mib=6000)), 0.0)
        foresee(request, cluster.view, refusals)

    assert nodes == found


@pytest.mark.parametrize("change", ["reserved", "gone", "better"])
def test_node_found_ahead_is_forgotten_when_anything_changes(change: str) -> None:
    """Room is taken, the Node goes, or another is liked more now."""
    cluster, refusals = a_full_cluster(), Refusals()
    for name in ("n03", "n07"):
        cluster.unreserve(f"on-{name}")
    foresee(REQUEST, cluster.view, refusals)

    if change == "reserved":
        cluster.reserve(a_grant("other", "n03", a_share("GPU-n03", memory_mib=8000)), 0.0)
    elif change == "gone":
        cluster.drop_node({"metadata": {"name": "n03"}})
    else:
        cluster.reserve(a_grant("other", "n07", a_share("GPU-n07", memory_mib=1000)), 0.0)

    assert "n07" == chosen(cluster, refusals)


def test_node_found_ahead_is_chosen_only_among_those_asked_about() -> None:
    """kube-scheduler's own filters may have left it out."""
    cluster, refusals = a_full_cluster(), Refusals()
    for name in ("n03", "n07"):
        cluster.unreserve(f"on-{name}")
    foresee(REQUEST, cluster.view, refusals)

    assert "n07" == filter_nodes(REQUEST, NAMES[5:], cluster.view, refusals=refusals).node
    assert None is filter_nodes(REQUEST, NAMES[10:], cluster.view, refusals=refusals).node


def test_node_found_ahead_for_one_policy_is_no_answer_for_the_other() -> None:
    """Binpack likes the fuller one, spread the emptier."""
    cluster, refusals = a_full_cluster(), Refusals()
    for name in ("n03", "n07"):
        cluster.unreserve(f"on-{name}")
    cluster.reserve(a_grant("other", "n07", a_share("GPU-n07", memory_mib=1000)), 0.0)
    spread = a_request(a_pod("p", a_container(gpu=1, gpumem=6000), annotations={keys.NODE_SCHEDULER_POLICY: "spread"}))
    foresee(REQUEST, cluster.view, refusals)
    foresee(spread, cluster.view, refusals)

    assert "n07" == chosen(cluster, refusals)
    assert "n03" == filter_nodes(spread, NAMES, cluster.view, refusals=refusals).node
