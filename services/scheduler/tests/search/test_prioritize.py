"""
How many points each Node gets.
"""

import pytest

from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.prioritize import priorities

from ..support.builders import a_cluster, a_device, a_node, a_pod, a_request


@pytest.mark.parametrize(("policy", "best"), [("binpack", "full"), ("spread", "idle")])
def test_priorities_follow_the_node_policy(policy: str, best: str) -> None:
    """The best gets 10, the worst 0, what offers nothing 0."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}")) for name in ("idle", "half", "full")))
    for name, memory_mib in (("half", 4000), ("full", 8000)):
        cluster.put_pod(a_pod(name, node=name, allocated=f"GPU-{name},NVIDIA,{memory_mib},0:;"))
    request = a_request(node=policy)

    found = priorities(request, ["idle", "half", "full", "ghost"], cluster.view)

    assert (10, 0) == (found[best], found["ghost"])
    assert 0 < found["half"] < 10
    assert best == filter_nodes(request, ["idle", "half", "full"], cluster.view).node


def test_equal_nodes_have_equal_priorities() -> None:
    """There is nothing to tell them by."""
    cluster = a_cluster(*(a_node(name, a_device(f"GPU-{name}")) for name in ("n1", "n2")))

    assert {"n1": 0, "n2": 0} == priorities(a_request(), ["n1", "n2"], cluster.view)
