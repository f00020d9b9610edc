"""What is told: codes, sentences, and how often."""

from dataclasses import replace

import pytest

from hami_scheduler import events
from hami_scheduler.bind import node_label, plain_bind, plan_bind
from hami_scheduler.events import REPEAT_SECONDS, EventBook
from hami_scheduler.explanation import choice, describe, refusal, short_by
from hami_scheduler.filter import UNREGISTERED, FilterResult, filter_nodes
from hami_scheduler.reasons import Misfit, Reason
from hami_scheduler.refusals import Refusals

from .builders import a_cluster, a_container, a_device, a_grant, a_node, a_pod, a_request, a_share, asks, vendors


def test_codes_are_sorted_as_text() -> None:
    """`10/16` comes before `2/16`, as in HAMi."""
    misfit = Misfit(((Reason.MEMORY, 2), (Reason.CORE, 10), (Reason.COUNT, 4)), 16)

    assert (
        "10/16 CardInsufficientCore, 2/16 CardInsufficientMemory, 4/16 AllocatedCardsInsufficientRequest" == misfit.text
    )


def test_refusal_says_what_is_asked_and_what_there_is() -> None:
    """Most common reasons first, few names, and the best device there is."""
    nodes = [a_node(f"n{i}", a_device(f"GPU-{i}", memory_mib=1000 + i)) for i in range(7)]
    cluster = a_cluster(*nodes)
    request = a_request(a_pod("p", a_container(gpu=2, gpumem_percentage=50), a_container("b", gpu=1, gpumem=5000)))
    names = [f"n{i}" for i in range(7)] + ["ghost"]
    result = filter_nodes(request, names, cluster.snapshot)

    assert (
        "no available node, 8 nodes do not meet; 7 nodes NodeInsufficientDevice(n0,n1,n2,n3,n4,...); "
        "1 nodes node unregistered(ghost); asked: 1 NVIDIA device with 5000 MiB and 0 % compute; "
        "GPU-6 on n6 has 1006 MiB, 100 % compute, 10 replicas left"
    ) == refusal(request, names, result.misfits, cluster.ledger)


def test_refusal_without_any_device_says_so() -> None:
    """Neither an empty cluster nor one of other models has a best device."""
    request = a_request(a_pod(annotations={"nvidia.com/use-gputype": "H100"}))

    assert "no candidate has an open device" in refusal(request, [], {}, a_cluster().ledger)
    assert "no candidate has an open device" in refusal(request, ["n1"], {}, a_cluster(a_node("n1", a_device())).ledger)


def test_choice_names_containers_devices_and_amounts() -> None:
    """One sentence a person understands; containers without devices are left out."""
    cluster = a_cluster(a_node("n1", a_device()))
    request = a_request(a_pod("p", a_container("web"), a_container("train", gpu=1, gpumem=3000, gpucores=25)))
    result = filter_nodes(request, ["n1"], cluster.snapshot)

    expected = "default/p fits node n1 (binpack, score 0.00): train gets GPU-a (3000 MiB, 25 % compute)"
    assert expected == choice(request, result)
    with pytest.raises(ValueError, match="no Node was chosen"):
        choice(request, FilterResult(None))


def test_percentage_is_described_as_one() -> None:
    """What was asked is told as it was asked."""
    assert "1 NVIDIA device with 50 % of the memory and 100 % compute" == describe(asks(0, 150, memory_percent=50))


def test_shortfall_is_told_per_device() -> None:
    """With the Pod, the Node and the device."""
    text = short_by(a_grant("u1", "n1"), {"GPU-b": "is gone", "GPU-a": "is full"})

    assert "node n1 can no longer take default/pod-u1: device GPU-a is full, device GPU-b is gone" == text


def test_refusal_of_one_kind_is_told_once_in_a_while() -> None:
    """Another kind of reason is news, the same one only after five minutes."""
    book = EventBook()

    assert book.is_news("u", "memory", 0.0)
    assert not book.is_news("u", "memory", REPEAT_SECONDS - 0.1)
    assert book.is_news("u", "core", 10.0)
    assert book.is_news("u", "core", 10.0 + REPEAT_SECONDS)
    book.forget("u")
    assert book.is_news("u", "core", 10.0 + REPEAT_SECONDS)


def test_book_forgets_the_oldest_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods that never run do not fill the memory."""
    monkeypatch.setattr(events, "_PODS_REMEMBERED", 2)
    book = EventBook()
    for uid in ("a", "b", "c"):
        book.is_news(uid, "memory", 0.0)

    assert not book.is_news("c", "memory", 1.0)
    assert book.is_news("a", "memory", 1.0)


def test_refusals_of_the_kinds_used_last_are_remembered() -> None:
    """The memory is bounded by kinds of requests."""
    refusals = Refusals()
    first = refusals.known_for(a_request(a_pod("p", a_container(gpu=1, gpumem=1))), {})
    first["n1"] = (1, Misfit.of_node(Reason.NODE_DEVICES))
    same = refusals.known_for(a_request(a_pod("other-pod", a_container(gpu=1, gpumem=1))), {})
    assert same is first

    for memory in range(2, 20):
        refusals.known_for(a_request(a_pod("p", a_container(gpu=1, gpumem=memory))), {})
    assert {} == refusals.known_for(a_request(a_pod("p", a_container(gpu=1, gpumem=1))), {})


def test_bind_carries_the_uid_and_every_annotation() -> None:
    """One Binding is the whole bind."""
    plan = plan_bind(a_grant("u1", "n1"), vendors(), 1700000000)

    assert "/api/v1/namespaces/default/pods/pod-u1/binding" == plan.path
    assert "u1" == plan.binding["metadata"]["uid"]
    assert {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1700000000",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1700000000",
        "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1000,0:;",
        "hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,1000,0:;",
    } == plan.binding["metadata"]["annotations"]


def test_bind_is_done_by_the_same_grant_on_the_same_pod() -> None:
    """A Pod elsewhere, replaced, or with another grant is not bound by this plan; what is consumed may differ."""
    plan = plan_bind(a_grant("uid-p", "n1"), vendors(), 1)
    consumed = {"hami.io/vgpu-devices-to-allocate": ";;"}

    assert plan.is_done_by(a_pod(node="n1", allocated="GPU-a,NVIDIA,1000,0:;", annotations=consumed))
    assert not plan.is_done_by(None)
    assert not plan.is_done_by(a_pod(node="n2", allocated="GPU-a,NVIDIA,1000,0:;"))
    assert not plan.is_done_by(a_pod(node="n1", allocated="GPU-b,NVIDIA,1000,0:;"))
    assert not plan.is_done_by(a_pod(node="n1", allocated="GPU-a,NVIDIA,1000,0:;", uid="other"))
    assert plain_bind("", "default", "p", "n1").is_done_by(a_pod(node="n1"))


def test_bind_is_possible_while_the_same_pod_is_unbound() -> None:
    """Only then a second try can succeed."""
    plan = plan_bind(a_grant("uid-p", "n1"), vendors(), 1)

    assert plan.is_possible_for(a_pod())
    assert not plan.is_possible_for(a_pod(uid="other"))
    assert not plan.is_possible_for(a_pod(node="n1"))
    assert not plan.is_possible_for(None)


@pytest.mark.parametrize(
    ("node", "expected"), [("n1", "n1"), ("a" * 63, "a" * 63), ("a" * 64, None), ("-n", None), ("", None)]
)
def test_label_is_left_out_where_it_would_be_invalid(node: str, expected: str | None) -> None:
    """A Node name may be 253 characters long, a label's value 63."""
    assert expected == node_label(node)


def test_refusal_of_a_pod_that_asks_for_nothing_has_no_numbers() -> None:
    """A Pod may lose its requests between two calls; the sentence still holds."""
    cluster = a_cluster(a_node("n1"))

    text = refusal(a_request(a_pod("p", a_container())), ["n1"], {"n1": UNREGISTERED}, cluster.ledger)

    assert "no available node, 1 nodes do not meet; 1 nodes node unregistered(n1)" == text


def test_bind_says_nothing_of_vendors_that_were_not_asked() -> None:
    """One vendor's devices, one vendor's annotations; a vendor without a queue gets no queue."""
    [frame] = vendors()
    other = replace(frame, vendor=replace(frame.vendor, key="Other", allocated_key="hami.io/other-allocated"))
    queueless = replace(frame, vendor=replace(frame.vendor, to_allocate_key=""))

    annotations = plan_bind(a_grant("u1", "n1", a_share()), (queueless, other), 1).annotations

    assert {"hami.io/vgpu-devices-allocated"} == {
        key for key in annotations if "allocate" in key and "phase" not in key
    }


def test_cause_is_what_comes_closest_to_fitting() -> None:
    """Devices of other types do not hide that the acceptable ones are full; every reason has its rank."""
    assert Reason.MEMORY is Misfit(((Reason.TYPE, 6), (Reason.MEMORY, 1), (Reason.CORDONED, 1)), 8).cause
    assert Reason.NUMA is Misfit(((Reason.COUNT, 1), (Reason.NUMA, 1)), 2).cause
    assert list(Reason) == [Misfit.of_node(reason).cause for reason in Reason]
