"""
Which Pods must leave a Node.
"""

from typing import Any

from hami_scheduler.search.preempt import must_leave
from hami_scheduler.state.cluster import Cluster
from hamicommon.model import Object

from ..support.builders import a_cluster, a_container, a_device, a_node, a_pod, a_request


def a_resident(name: str, share: str, priority: int = 0, **fields: Any) -> Object:
    """Return a Pod on n1 that holds *share* of GPU-a or GPU-b."""
    uuid, memory_mib = share.split(":")
    pod = a_pod(name, a_container(gpu=1), node="n1", allocated=f"{uuid},NVIDIA,{memory_mib},0:;", **fields)
    pod["spec"]["priority"] = priority
    return pod


def a_busy_cluster(*residents: Object) -> Cluster:
    """Return one Node with two devices of 10000 MiB and *residents* on them."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a", memory_mib=10000), a_device("GPU-b", memory_mib=10000)))
    for pod in residents:
        cluster.put_pod(pod)
    return cluster


def leaving(cluster: Cluster, *named: str, memory_mib: int = 8000, priority: int = 10) -> Any:
    """Return who leaves n1 for a Pod of *priority* that asks *memory_mib*."""
    request = a_request(a_pod("high", a_container(gpu=1, gpumem=memory_mib)))
    return must_leave(request, priority, "n1", named, cluster.view)


def test_whom_kube_scheduler_named_is_enough() -> None:
    """A Node where the Pod gets its devices then stays as it was named."""
    cluster = a_busy_cluster(a_resident("x", "GPU-a:9000"), a_resident("y", "GPU-b:9000"))

    assert ("uid-x",) == leaving(cluster, "uid-x")
    assert ("of-another-kind", "uid-x") == leaving(cluster, "of-another-kind", "uid-x")


def test_node_without_room_even_then_is_of_no_use() -> None:
    """Nobody is evicted in vain: its residents are of the same priority, or the device is too small."""
    cluster = a_busy_cluster(a_resident("x", "GPU-a:9000", 10), a_resident("y", "GPU-b:9000", 11))

    assert None is leaving(cluster, "of-another-kind")
    assert None is leaving(a_busy_cluster(), "of-another-kind", memory_mib=10001)


def test_node_that_offers_nothing_is_of_no_use() -> None:
    """It is not known."""
    assert None is must_leave(a_request(), 10, "n2", ("uid-x",), a_busy_cluster().view)


def test_fewest_and_lowest_are_added() -> None:
    """The device of the lower one is freed; who has a place beside the Pod stays."""
    low, middle = a_resident("low", "GPU-a:9000", 1), a_resident("middle", "GPU-b:9000", 5)
    small = a_resident("small", "GPU-a:1000", 0)

    assert ("named", "uid-low") == leaving(a_busy_cluster(low, middle, small), "named")


def test_reserved_pods_are_left_alone() -> None:
    """Their priority is not known, and kube-scheduler may not find them on the Node yet."""
    cluster = a_busy_cluster(a_resident("x", "GPU-a:9000"), a_resident("y", "GPU-b:9000"))
    request = a_request(a_pod("high", a_container(gpu=1, gpumem=8000)))

    assert ("z", "uid-x") == must_leave(request, 10, "n1", ("z",), cluster.view, {"uid-y"})


def test_quota_that_leaving_pods_held_is_free_again() -> None:
    """Of the Pod's own namespace; what others hold is not its to take."""
    quota = {"metadata": {"namespace": "default", "name": "q"}, "spec": {"hard": {"limits.nvidia.com/gpumem": "9000"}}}
    own, other = a_resident("x", "GPU-a:9000"), a_resident("y", "GPU-b:9000", namespace="team")
    cluster = a_busy_cluster(own, other)
    cluster.quotas.put(quota)

    assert ("uid-x",) == leaving(cluster, "uid-x")
    assert ("uid-y", "uid-x") == leaving(cluster, "uid-y"), "room alone would do, but not within the quota"
