"""
What is remembered of Nodes that refused never hides one that would take the Pod now.
"""

import numpy as np
import pytest

from hami_scheduler.cluster import Cluster
from hami_scheduler.filter import allowances_of, filter_nodes
from hami_scheduler.refusals import Refusals

from .builders import NOW, a_cluster, a_container, a_device, a_grant, a_node, a_pod, a_request, a_share

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
    found = filter_nodes(REQUEST, NAMES, cluster.snapshot, refusals=refusals).node
    assert found == filter_nodes(REQUEST, NAMES, cluster.snapshot).node
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

    cluster.put_node(a_node("n03", a_device("GPU-n03", memory_mib=20000)), NOW)
    assert "n03" == chosen(cluster, refusals)


def test_repaired_ledger_is_looked_at_anew() -> None:
    """What was refused by wrong sums is not believed once they are right."""
    cluster, refusals = a_cluster(a_node("n00", a_device("GPU-n00", memory_mib=10000))), Refusals()
    cluster.ledger.promised[0] = (0, 9000, 0)
    assert None is filter_nodes(REQUEST, NAMES, cluster.snapshot, refusals=refusals).node

    assert 1 == cluster.recount()

    assert "n00" == chosen(cluster, refusals)
