"""
What the kubelets have left decides, too: by every Pod that is on a Node, for its whole life.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.explain.remedies import Question
from hami_scheduler.explain.report import explain, finish
from hami_scheduler.explain.wording import Facts, node_sentence
from hami_scheduler.search.filter import filter_nodes
from hami_scheduler.search.place_pod import try_node
from hami_scheduler.search.placement import Placement
from hami_scheduler.search.preempt import must_leave
from hami_scheduler.search.prefilter import possible_nodes
from hami_scheduler.search.prioritize import priorities
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.state.ledger import shortfall
from hami_scheduler.values.policies import Policies
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.rejection import REJECTION_SECONDS
from hamicommon.model import Object

from ..support.builders import (
    a_cluster,
    a_container,
    a_device,
    a_grant,
    a_node,
    a_pod,
    a_request,
    a_share,
    only_devices,
    promise_of,
)

GPU = "nvidia.com/gpu"


def tried(cluster: Cluster, pod: Object, name: str = "n1") -> Placement | Misfit:
    """Return what *pod* gets on a Node, or why not."""
    return try_node(a_request(pod), name, cluster.ledger, {})


def refused(cluster: Cluster, pod: Object) -> bool:
    """Return whether the kubelet's count refuses *pod*, and nothing else."""
    found = tried(cluster, pod)
    return isinstance(found, Misfit) and found.reasons == (Reason.KUBELET,)


def asking(count: int, name: str = "p", **fields: Any) -> Object:
    """Return a Pod that asks for *count* small shares."""
    return a_pod(name, a_container(gpu=count, gpumem=10), **fields)


@pytest.mark.parametrize(
    "foreign",
    [
        pytest.param(a_pod("f", a_container(gpu=9), node="n1"), id="another scheduler or nodeName"),
        pytest.param(a_pod("f", a_container(gpu=9), node="n1", allocated="what?"), id="unreadable annotation"),
        pytest.param(
            a_pod("f", a_container(gpu=1), node="n1", inits=[a_container("i", gpu=9)]),
            id="init container, ended or not",
        ),
    ],
)
def test_pods_without_a_grant_hold_replicas(foreign: Object) -> None:
    """The kubelet counts every Pod that is on its Node; the tenth replica is left."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a"), a_device("GPU-b"), replicas=10))
    cluster.put_pod(foreign)

    assert isinstance(tried(cluster, asking(1)), Placement)
    assert refused(cluster, asking(2))
    cluster.drop_pod(foreign)
    assert isinstance(tried(cluster, asking(2)), Placement)


def test_pod_holds_what_its_init_container_had() -> None:
    """Five Pods with an init container of two and a main one of one fill ten replicas, whether it has ended or not."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a"), a_device("GPU-b"), replicas=10))
    init = {"state": {"terminated": {"exitCode": 0}}, "name": "i"}
    for number in range(5):
        one = a_pod(
            f"p{number}",
            a_container(gpu=1, gpumem=10),
            inits=[a_container("i", gpu=2, gpumem=10)],
            node="n1",
            allocated="GPU-a,NVIDIA,10,0:GPU-b,NVIDIA,10,0:;GPU-a,NVIDIA,10,0:;",
        )
        one["status"]["initContainerStatuses"] = [init]
        assert isinstance(tried(cluster, one), Placement)
        cluster.put_pod(one)

    assert refused(cluster, asking(1))
    assert 0 == cluster.recount()


def test_reservation_holds_replicas_until_it_ends() -> None:
    """Two Pods filtered one after the other do not get the same last replica."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a"), a_device("GPU-b"), replicas=2))
    grant = a_grant("u", "n1", a_share("GPU-a"), a_share("GPU-b"), replicas=((GPU, 2),))

    cluster.reserve(grant, 0.0)
    assert refused(cluster, asking(1))
    cluster.unreserve("u")
    assert isinstance(tried(cluster, asking(2)), Placement)


def test_bind_is_refused_once_the_kubelet_has_too_few() -> None:
    """What is reserved is checked again: a Pod of another scheduler may have come."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a"), replicas=2))
    grant = a_grant("u", "n1", a_share("GPU-a"), replicas=((GPU, 1),))
    cluster.reserve(grant, 0.0)
    assert {} == shortfall(cluster.ledger, grant)

    cluster.put_pod(a_pod("f", a_container(gpu=2), node="n1"))
    assert {GPU: "has too few healthy replicas left on its kubelet"} == shortfall(cluster.ledger, grant)


def test_replicas_of_a_failed_devices_pods_leave_with_it() -> None:
    """
    A plugin that knows the owners withdraws what the failed device's Pods hold: the other device's places stay.

    Another plugin withdraws replicas at random, so that all of them count.
    """
    for finds_owners, fits in ((True, True), (False, False)):
        devices = [a_device(f"GPU-{name}", finds_owners=finds_owners) for name in "ab"]
        cluster = a_cluster(a_node("n1", *devices, replicas=20))
        for number in range(10):
            share = f"GPU-{'ab'[number % 2]},NVIDIA,10,0:;"
            cluster.put_pod(asking(1, f"p{number}", node="n1", allocated=share))
        lost = [devices[0], a_device("GPU-b", finds_owners=finds_owners, healthy=False)]

        cluster.put_node(a_node("n1", *lost, replicas=10))

        assert fits is isinstance(tried(cluster, asking(1)), Placement)
        assert 0 == cluster.recount()


def test_pod_that_reuses_replicas_counts_whole_on_a_failed_device() -> None:
    """Whose replicas the plugin withdraws is then open."""
    devices = [a_device("GPU-a", finds_owners=True), a_device("GPU-b", finds_owners=True, healthy=False)]
    cluster = a_cluster(a_node("n1", *devices, replicas=1))
    pod = a_pod(
        "p",
        a_container(gpu=1, gpumem=10),
        inits=[a_container("i", gpu=1, gpumem=10)],
        node="n1",
        allocated="GPU-a,NVIDIA,10,0:;GPU-b,NVIDIA,10,0:;",
    )
    cluster.put_pod(pod)

    assert refused(cluster, asking(1, "other"))


def test_refusal_is_hamis_code_for_too_few_devices_and_says_what_is_left() -> None:
    """FailedNodes has HAMi's code alone; numbers are in the Event and in explain."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a"), a_device("GPU-b"), replicas=4))
    cluster.put_pod(a_pod("f", a_container(gpu=3), node="n1"))
    request = a_request(asking(2))
    result = filter_nodes(request, ["n1"], cluster.view)
    sentence = node_sentence("n1", result.refusal.misfits["n1"], Facts(request, cluster.ledger, {}))

    assert {"n1": "NodeInsufficientDevice"} == result.refusal.failed_nodes
    assert "has fewer nvidia.com/gpu left on the kubelet than the 2 asked (best has 1)" == sentence
    assert Reason.KUBELET is result.refusal.leading_cause


def test_explain_names_nodes_whose_plugin_does_not_run() -> None:
    """They list devices, so people look for them there."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a"), replicas=0))
    report = finish(explain(Question(asking(1), cluster.vendors, Policies()), cluster.view, only_devices(cluster)))

    [node] = report.nodes
    assert "node unregistered" == node.code
    assert "lists devices, and the kubelet offers no nvidia.com/gpu: its device plugin does not run" == node.why


def test_pods_without_a_grant_are_preempted_for_their_replicas() -> None:
    """Eviction of another scheduler's Pod of lower priority helps; of what holds nothing it does not."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a"), replicas=2))
    cluster.put_pod(a_pod("low", a_container(gpu=2), node="n1"))
    cluster.put_pod(a_pod("none", {"name": "c"}, node="n1"))
    request = a_request(asking(1))

    assert ("uid-low",) == must_leave(request, 10, "n1", (), cluster.view)
    assert None is must_leave(request, 0, "n1", (), cluster.view)


def test_node_without_replicas_gets_no_points() -> None:
    """kube-scheduler asks about Nodes that were free a moment before."""
    cluster = a_cluster(a_node("n1", a_device("GPU-a")), a_node("n2", a_device("GPU-b"), replicas=1))
    cluster.put_pod(asking(1, "p1", node="n1", allocated="GPU-a,NVIDIA,10,0:;"))
    cluster.put_pod(a_pod("f", a_container(gpu=1), node="n2"))

    assert {"n1": 0, "n2": 0} == priorities(a_request(asking(1)), ["n1", "n2"], cluster.view)


COUNTS = st.lists(st.tuples(st.integers(1, 6), st.integers(1, 3), st.booleans()), max_size=12)


@pytest.mark.property
@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), COUNTS)
def test_arrays_agree_with_a_count_by_hand(offered: list[int], pods: list[tuple[int, int, bool]]) -> None:
    """Pods come and go, with and without a grant; what is left is offered minus held, at every step."""
    cluster = a_cluster(*(a_node(f"n{i}", a_device(f"GPU-{i}"), replicas=count) for i, count in enumerate(offered)))
    held = [0] * len(offered)
    for number, (count, place, stays) in enumerate(pods):
        node = place % len(offered)
        pod = a_pod(
            f"p{number}", a_container(gpu=count), node=f"n{node}", allocated="GPU-0,NVIDIA,1,0:;" if stays else None
        )
        cluster.put_pod(pod)
        held[node] += count
        if not stays and number % 2:
            cluster.drop_pod(pod)
            held[node] -= count
    request = a_request(asking(1))
    possible = possible_nodes(cluster.ledger, request)
    for i, count in enumerate(offered):
        entry = cluster.ledger.node(f"n{i}")
        assert (entry is not None) is (count > 0)
        if entry is not None:
            assert count - held[i] == cluster.ledger.replicas_left(entry, GPU)
            assert bool(possible[entry.index]) <= (count - held[i] >= 1)
    assert 0 == cluster.recount()


# What the Node's status does not say


def rejected(pod: Object, reason: str = "UnexpectedAdmissionError", message: str = "") -> Object:
    """Return *pod* as its kubelet rejected it."""
    status = {"phase": "Failed", "reason": reason, "message": message or f"Allocate failed due to no devices {GPU}"}
    return {**pod, "status": status}


@pytest.mark.parametrize(
    ("reason", "message", "teaches"),
    [
        ("UnexpectedAdmissionError", f"requested number of devices unavailable for {GPU}. Requested: 1", True),
        ("UnexpectedAdmissionError", "rpc error: code = Unavailable desc = connection refused", True),
        (f"OutOf{GPU}", "Node didn't have enough resource", True),
        ("OutOfcpu", "Node didn't have enough resource: cpu", False),
        ("UnexpectedAdmissionError", "rpc error: code = Unknown desc = no Pod waits for an allocation", False),
        ("UnexpectedAdmissionError", "rpc error: code = FailedPrecondition desc = the grant says otherwise", False),
        ("Evicted", "The node was low on resource: memory", False),
    ],
)
def test_kubelets_rejection_closes_its_node(reason: str, message: str, teaches: bool) -> None:
    """What the kubelet lacks is about the Node; what the device plugin answers, and what Pods do, is not."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=10), a_node("n2", a_device("GPU-b"), replicas=10))
    pod = asking(1, "p1", node="n1", allocated="GPU-a,NVIDIA,10,0:;")
    cluster.put_pod(pod, 0.0)
    cluster.put_pod(rejected(pod, reason, message), 1.0)

    assert teaches is refused(cluster, asking(1))
    assert isinstance(tried(cluster, asking(1), "n2"), Placement)
    assert int(teaches) == cluster.kubelet_rejections


def test_rejection_ends_with_the_nodes_status_or_with_time() -> None:
    """A Node that goes on rejecting Pods is tried less and less often."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=10))

    def reject(now: float) -> None:
        pod = asking(1, "p1", node="n1", allocated="GPU-a,NVIDIA,10,0:;")
        cluster.put_pod(pod, now)
        cluster.put_pod(rejected(pod), now)

    reject(0.0)
    version = cluster.view.version
    cluster.expire(REJECTION_SECONDS - 1)
    assert refused(cluster, asking(1))
    cluster.expire(REJECTION_SECONDS)
    assert isinstance(tried(cluster, asking(1)), Placement)
    assert version < cluster.view.version
    reject(100.0)
    cluster.expire(100 + REJECTION_SECONDS)
    assert refused(cluster, asking(1))
    cluster.expire(100 + 2 * REJECTION_SECONDS)
    assert isinstance(tried(cluster, asking(1)), Placement)
    reject(200.0)
    cluster.put_node(a_node("n1", a_device(), replicas=9))
    assert isinstance(tried(cluster, asking(1)), Placement)
    reject(300.0)
    cluster.expire(300 + REJECTION_SECONDS)
    assert isinstance(tried(cluster, asking(1)), Placement)
    assert 0 == cluster.recount()


def test_pod_that_never_fitted_closes_no_node() -> None:
    """Somebody who sends such Pods by nodeName would close the Node to everybody."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=10))
    cluster.put_pod(rejected(asking(11, "greedy", node="n1")), 0.0)
    held = asking(11, "greedy", node="n1", uid="seen-before")
    cluster.put_pod(held, 0.0)
    cluster.put_pod(rejected(held), 0.0)

    assert isinstance(tried(cluster, asking(1)), Placement)


def test_pods_that_a_booting_kubelet_rejects_at_once_teach_one_thing() -> None:
    """They were sent before the first of them was rejected. What becomes of their objects later teaches nothing."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=10))
    pods = [asking(1, f"p{number}", node="n1", allocated="GPU-a,NVIDIA,10,0:;") for number in range(4)]
    for pod in pods:
        cluster.put_pod(pod, 0.0)
    for pod in pods:
        cluster.put_pod(rejected(pod), 1.0)

    assert refused(cluster, asking(1))
    cluster.expire(1 + REJECTION_SECONDS)
    for pod in pods:
        cluster.put_pod(rejected(pod), 2 + REJECTION_SECONDS)
    assert isinstance(tried(cluster, asking(1)), Placement)
    assert 1 == cluster.kubelet_rejections


def test_rejections_before_the_first_list_teach_nothing() -> None:
    """They say nothing about now."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=10))
    cluster.replace_pods([rejected(asking(1, "p1", node="n1"))], 5.0)

    assert isinstance(tried(cluster, asking(1)), Placement)


def test_rejection_outlives_a_new_device_config() -> None:
    """The kubelet is the same."""
    old, new = (a_cluster(a_node("n1", a_device(), replicas=10)) for _ in range(2))
    old.put_pod(asking(1, "p1", node="n1"), 0.0)
    old.put_pod(rejected(asking(1, "p1", node="n1")), 0.0)

    new.take_over(old, 1.0)
    assert refused(new, asking(1))
    new.drop_node(a_node("n1"))
    new.put_node(a_node("n1", a_device(), replicas=10))
    assert isinstance(tried(new, asking(1)), Placement)


def test_pod_deleted_by_force_holds_replicas_while_its_kubelet_ends_it() -> None:
    """The object is gone, the containers are not; memory counts as the API says."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=1))
    pod = asking(1, "p1", node="n1", allocated="GPU-a,NVIDIA,10,0:;")
    pod["spec"]["terminationGracePeriodSeconds"] = 5
    cluster.put_pod(pod, 0.0)

    cluster.drop_pod(pod, 10.0)
    assert 0 == promise_of(cluster.ledger, "n1", "GPU-a").replicas
    assert refused(cluster, asking(1))
    cluster.expire(18.0)
    assert isinstance(tried(cluster, asking(1)), Placement)


@pytest.mark.parametrize("node_goes_first", [False, True])
def test_pod_deleted_by_force_holds_nothing_of_a_node_that_is_made_anew(node_goes_first: bool) -> None:
    """A Node object that is deleted takes its kubelet's count with it."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=1))
    pod = asking(1, "p1", node="n1", allocated="GPU-a,NVIDIA,10,0:;")
    cluster.put_pod(pod, 0.0)

    if node_goes_first:
        cluster.drop_node(a_node("n1"))
    cluster.drop_pod(pod, 10.0)
    if not node_goes_first:
        cluster.drop_node(a_node("n1"))
    cluster.put_node(a_node("n1", a_device(), replicas=1))

    assert isinstance(tried(cluster, asking(1)), Placement)


def test_pod_that_has_ended_holds_nothing() -> None:
    """A kubelet reports the end once it has freed the replicas, whatever becomes of the object then."""
    cluster = a_cluster(a_node("n1", a_device(), replicas=1))
    pod = asking(1, "p1", node="n1", allocated="GPU-a,NVIDIA,10,0:;")
    for ended in (pod, {**pod, "status": {"phase": "Succeeded"}}):
        cluster.put_pod(pod, 0.0)
        cluster.put_pod({**ended, "status": {"phase": "Succeeded"}}, 0.0)
        cluster.drop_pod(ended, 1.0)
        assert isinstance(tried(cluster, asking(1)), Placement)
