"""
Memory of refusals, or of the best Node, never hides a better Node.
"""

from typing import Any

import pytest

from hami_scheduler.search import filter as filter_module
from hami_scheduler.search.cache import Memo
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.request import PodRequest
from hamicommon.wire import keys

from ..support.builders import a_cluster, a_container, a_device, a_grant, a_node, a_pod, a_request, a_share

REQUEST = a_request(a_pod("p", a_container(gpu=1, gpumem=6000)))
NAMES = [f"n{number:02}" for number in range(20)]


def a_full_cluster() -> Cluster:
    """Return nodes with one device each, promised whole."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}", memory_mib=10000)) for name in NAMES))
    for name in NAMES:
        cluster.reserve(a_grant(f"on-{name}", name, a_share(f"GPU-{name}", memory_mib=10000)), 0.0)
    return cluster


def chosen(cluster: Cluster, memo: Memo) -> str | None:
    """Return the Node that is chosen, which is the same without a memory."""
    found = filter_nodes(REQUEST, NAMES, cluster.view, search=memo.search(REQUEST, cluster.view)).node
    assert found == filter_nodes(REQUEST, NAMES, cluster.view).node
    return found


def tried(cluster: Cluster, memo: Memo, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the Nodes that are tried when the same is asked once more."""
    names = []

    def noting(request: PodRequest, name: str, *given: Any) -> Any:
        """Note the Node, and try it."""
        names.append(name)
        return try_node(request, name, *given)

    with monkeypatch.context() as patch:
        patch.setattr(filter_module, "try_node", noting)
        filter_nodes(REQUEST, NAMES, cluster.view, search=memo.search(REQUEST, cluster.view))
    return names


@pytest.mark.parametrize("freed", [NAMES[7:8], NAMES[5:]], ids=["one", "many"])
def test_room_that_appears_is_found(freed: list[str]) -> None:
    """Few Nodes that changed are tried, many are looked at all at once; of equal ones the first by name is taken."""
    cluster, memo = a_full_cluster(), Memo()
    assert None is chosen(cluster, memo)

    for name in freed:
        cluster.unreserve(f"on-{name}")

    assert freed[0] == chosen(cluster, memo)


def test_node_that_changed_and_is_still_full_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is tried in vain, the next one is chosen, and it is not tried again until it changes."""
    cluster, memo = a_full_cluster(), Memo()
    cluster.unreserve("on-n03")
    assert "n03" == chosen(cluster, memo)

    cluster.reserve(a_grant("small", "n05", a_share("GPU-n05", memory_mib=1)), 0.0)

    assert "n03" == chosen(cluster, memo)
    assert ["n03"] == tried(cluster, memo, monkeypatch)


def test_node_that_comes_is_tried_and_one_that_goes_is_not() -> None:
    """Its index in the arrays stays, and another Node may get it."""
    cluster, memo = a_full_cluster(), Memo()
    cluster.unreserve("on-n03")
    assert "n03" == chosen(cluster, memo)

    cluster.drop_node({"metadata": {"name": "n03"}})
    assert None is chosen(cluster, memo)

    cluster.put_node(a_node("n03", a_device("GPU-n03", memory_mib=20000)))
    assert "n03" == chosen(cluster, memo)


def test_repaired_ledger_is_searched_again() -> None:
    """Refusals by wrong sums are dropped once the sums are right."""
    cluster, memo = a_cluster(a_node("n00", a_device("GPU-n00", memory_mib=10000))), Memo()
    cluster.ledger.promised[0] = (0, 9000, 0)
    assert None is filter_nodes(REQUEST, NAMES, cluster.view, search=memo.search(REQUEST, cluster.view)).node

    assert 1 == cluster.recount()

    assert "n00" == chosen(cluster, memo)


def test_the_same_nodes_refuse_for_reasons_that_are_worked_out_once() -> None:
    """kube-scheduler asks about one waiting Pod after another, and names the Nodes in any order."""
    cluster, memo = a_full_cluster(), Memo()
    first = filter_nodes(REQUEST, NAMES, cluster.view, search=memo.search(REQUEST, cluster.view))

    again = filter_nodes(REQUEST, NAMES[::-1], cluster.view, search=memo.search(REQUEST, cluster.view))

    assert again.refusal.failed_nodes is first.refusal.failed_nodes
    assert dict.fromkeys(NAMES, "1/1 CardInsufficientMemory") == again.refusal.failed_nodes


@pytest.mark.parametrize("names", [NAMES[5:], [*NAMES, "ghost"], [*NAMES[1:], NAMES[5]]])
def test_other_nodes_refuse_for_their_own_reasons(names: list[str]) -> None:
    """Fewer, more, and as many of which one is named twice."""
    cluster, memo = a_full_cluster(), Memo()
    filter_nodes(REQUEST, NAMES, cluster.view, search=memo.search(REQUEST, cluster.view))

    found = filter_nodes(REQUEST, names, cluster.view, search=memo.search(REQUEST, cluster.view))

    assert found == filter_nodes(REQUEST, names, cluster.view)
    assert set(names) == set(found.refusal.failed_nodes)


def test_a_node_that_changed_refuses_for_another_reason() -> None:
    """What was worked out before is not told again."""
    cluster, memo = a_full_cluster(), Memo()
    before = filter_nodes(REQUEST, NAMES, cluster.view, search=memo.search(REQUEST, cluster.view))

    cluster.drop_node({"metadata": {"name": "n03"}})

    after = filter_nodes(REQUEST, NAMES, cluster.view, search=memo.search(REQUEST, cluster.view))
    assert {**before.refusal.failed_nodes, "n03": "node unregistered"} == after.refusal.failed_nodes


def test_best_node_is_found_ahead_and_not_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Node is tried when the call comes."""
    cluster, memo = a_full_cluster(), Memo()
    cluster.unreserve("on-n03")
    memo.search(REQUEST, cluster.view).look_ahead()

    assert [] == tried(cluster, memo, monkeypatch)
    assert "n03" == chosen(cluster, memo)


@pytest.mark.parametrize(
    ("policy", "nodes"),
    [("binpack", ["n00", "n00", "n01", "n01", "n02"]), ("spread", ["n00", "n01", "n02", "n00", "n01"])],
)
def test_like_pods_one_after_another_get_what_each_would_alone(policy: str, nodes: list[str]) -> None:
    """The Node that got one is the best still under binpack, until it is full; under spread it is no more."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}", memory_mib=13000)) for name in NAMES[:3]))
    request = a_request(a_pod("p", a_container(gpu=1, gpumem=6000), annotations={keys.NODE_SCHEDULER_POLICY: policy}))
    memo, found = Memo(), []
    for number in range(len(nodes)):
        result = filter_nodes(request, NAMES, cluster.view, search=memo.search(request, cluster.view))
        assert result == filter_nodes(request, NAMES, cluster.view)
        node = result.node or ""
        found.append(node)
        cluster.reserve(a_grant(f"p{number}", node, a_share(f"GPU-{node}", memory_mib=6000)), 0.0)
        memo.search(request, cluster.view).look_ahead()

    assert nodes == found


@pytest.mark.parametrize("change", ["reserved", "gone", "better"])
def test_node_found_ahead_is_forgotten_when_anything_changes(change: str) -> None:
    """Room is taken, the Node goes, or another is liked more now."""
    cluster, memo = a_full_cluster(), Memo()
    for name in ("n03", "n07"):
        cluster.unreserve(f"on-{name}")
    memo.search(REQUEST, cluster.view).look_ahead()

    if change == "reserved":
        cluster.reserve(a_grant("other", "n03", a_share("GPU-n03", memory_mib=8000)), 0.0)
    elif change == "gone":
        cluster.drop_node({"metadata": {"name": "n03"}})
    else:
        cluster.reserve(a_grant("other", "n07", a_share("GPU-n07", memory_mib=1000)), 0.0)

    assert "n07" == chosen(cluster, memo)


def test_node_found_ahead_is_chosen_only_among_those_asked_about() -> None:
    """kube-scheduler's own filters may have left it out."""
    cluster, memo = a_full_cluster(), Memo()
    for name in ("n03", "n07"):
        cluster.unreserve(f"on-{name}")
    memo.search(REQUEST, cluster.view).look_ahead()

    assert "n07" == filter_nodes(REQUEST, NAMES[5:], cluster.view, search=memo.search(REQUEST, cluster.view)).node
    assert None is filter_nodes(REQUEST, NAMES[10:], cluster.view, search=memo.search(REQUEST, cluster.view)).node


def test_node_found_ahead_for_one_policy_is_no_answer_for_the_other() -> None:
    """Binpack likes the fuller one, spread the emptier."""
    cluster, memo = a_full_cluster(), Memo()
    for name in ("n03", "n07"):
        cluster.unreserve(f"on-{name}")
    cluster.reserve(a_grant("other", "n07", a_share("GPU-n07", memory_mib=1000)), 0.0)
    spread = a_request(a_pod("p", a_container(gpu=1, gpumem=6000), annotations={keys.NODE_SCHEDULER_POLICY: "spread"}))
    memo.search(REQUEST, cluster.view).look_ahead()
    memo.search(spread, cluster.view).look_ahead()

    assert "n07" == chosen(cluster, memo)
    assert "n03" == filter_nodes(spread, NAMES, cluster.view, search=memo.search(spread, cluster.view)).node
