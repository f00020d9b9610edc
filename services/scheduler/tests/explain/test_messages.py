"""What is told: codes, sentences, and how often."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hami_scheduler.bind.plan import BindPlan, node_label, plan_bind
from hami_scheduler.explain.wording import (
    EVENT_LIMIT_BYTES,
    Facts,
    choice,
    describe,
    node_sentence,
    refusal,
    short_by,
    summary,
)
from hami_scheduler.search.cache import Memo
from hami_scheduler.search.filter import FilterResult, filter_nodes
from hami_scheduler.search.place_pod import UNREGISTERED
from hami_scheduler.serve import context
from hami_scheduler.serve.context import REPEAT_SECONDS, EventBook
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.reasons import PUBLIC_REASONS, Misfit, Reason
from hamicommon.model import Device, Object

from ..support.builders import (
    QUOTA,
    a_cluster,
    a_container,
    a_device,
    a_grant,
    a_mig_device,
    a_node,
    a_pod,
    a_register,
    a_request,
    a_share,
    an_inventory,
    asks,
    vendors,
)
from ..support.hami_vectors import by_name
from ..test_vectors import DECIDED, tried


def test_codes_are_sorted_as_text() -> None:
    """`10/16` comes before `2/16`, as in HAMi."""
    misfit = Misfit(((Reason.MEMORY, 2), (Reason.CORE, 10), (Reason.COUNT, 4)), 16)

    assert (
        "10/16 CardInsufficientCore, 2/16 CardInsufficientMemory, 4/16 AllocatedCardsInsufficientRequest" == misfit.text
    )


def refused(cluster: Cluster, pod: Object, *names: str) -> str:
    """Return why *pod* fits none of the Nodes *names* of *cluster*."""
    request, snapshot = a_request(pod), cluster.view
    result = filter_nodes(request, names, snapshot)
    assert None is result.node
    return refusal(request, result.refusal.misfits, snapshot.ledger, snapshot.allowances(request))


def causes(cluster: Cluster, pod: Object, *names: str) -> str:
    """Return the ranked causes alone."""
    return refused(cluster, pod, *names).partition("; ")[0]


def test_refusal_ranks_causes_and_says_the_best_there_is() -> None:
    """Each Node once, most common cause first; then what is asked, HAMi's words and its codes with few names."""
    nodes = [a_node(f"n{i}", a_device(f"GPU-{i}", memory_mib=2041 + i)) for i in range(7)]
    taken = [a_node(f"t{i}", a_device(f"GPU-t{i}", count=1)) for i in range(3)]
    cordoned = [a_node(f"c{i}", a_device(f"GPU-c{i}"), hami_io__device_cordon=f"GPU-c{i}") for i in range(2)]
    cluster = a_cluster(*nodes, *taken, *cordoned)
    for i in range(3):
        cluster.ledger.put(a_grant(f"u{i}", f"t{i}", a_share(f"GPU-t{i}", 1)))
    names = [node["metadata"]["name"] for node in (*nodes, *taken, *cordoned)]

    assert (
        "0 of 12 nodes: 7 lack 3000 MiB on any NVIDIA device (best has 2047), 3 have no free replica, 2 are cordoned; "
        "asked: 1 NVIDIA device with 3000 MiB; no available node, 12 nodes do not meet; "
        "7 nodes CardInsufficientMemory(n0,n1,n2,n3,n4,...); 3 nodes CardTimeSlicingExhausted(t0,t1,t2); "
        "2 nodes CardCordoned(c0,c1)"
    ) == refused(cluster, a_pod("p", a_container(gpu=1, gpumem=3000)), *names)


SMALL = a_device(memory_mib=1000)
FULL = a_grant("u", "n1", a_share("GPU-a", 100, 80))


@pytest.mark.parametrize(
    ("limits", "annotations", "device", "held", "expected"),
    [
        pytest.param({"gpumem": 1}, {}, None, None, "1 offers no device", id="no device"),
        pytest.param({"gpu": 2, "gpumem": 1}, {}, SMALL, None, "1 has fewer NVIDIA devices than the 2 asked", id="few"),
        pytest.param(
            {"gpumem": 1}, {}, a_device(healthy=False), None, "1 has no healthy NVIDIA device", id="unhealthy"
        ),
        pytest.param(
            {"gpumem": 1},
            {"nvidia.com/use-gputype": "H100"},
            SMALL,
            None,
            "1 has no NVIDIA device of a type the Pod accepts (H100)",
            id="type",
        ),
        pytest.param(
            {"gpumem": 1},
            {"nvidia.com/nouse-gputype": "A10", "nvidia.com/vgpu-mode": "hami-core"},
            SMALL,
            None,
            "1 has no NVIDIA device of a type the Pod accepts (not A10, mode hami-core)",
            id="other type",
        ),
        pytest.param(
            {"gpumem": 1},
            {"nvidia.com/nouse-gpuuuid": "GPU-a"},
            SMALL,
            None,
            "1 has no device that the Pod's UUID lists allow",
            id="uuid",
        ),
        pytest.param(
            {"gpumem": 1},
            {"hami.io/gpu-scheduler-policy": "mutex"},
            a_device(),
            FULL,
            "1 has no NVIDIA device without other users",
            id="mutex",
        ),
        pytest.param(
            {"gpumem_percentage": 50},
            {},
            SMALL,
            a_grant("u", "n1", a_share("GPU-a", 600)),
            "1 lacks 50 % of the memory on any NVIDIA device (best has 40 % of 1000 MiB)",
            id="percentage",
        ),
        pytest.param(
            {"gpumem": 1, "gpucores": 50},
            {},
            a_device(),
            FULL,
            "1 lacks 50 % compute on any NVIDIA device (best has 20 %)",
            id="compute",
        ),
        pytest.param(
            {"gpumem": 1, "gpucores": 150},
            {},
            a_device(core_percent=200),
            a_grant("u", "n1", a_share("GPU-a", 1, 120)),
            "1 lacks 100 % compute on any NVIDIA device (best has 80 of 200)",
            id="scaled compute",
        ),
        pytest.param(
            {"gpumem": 1},
            {},
            a_device(),
            a_grant("u", "n1", a_share("GPU-a", 1, 100)),
            "1 has no compute left on any NVIDIA device",
            id="no compute",
        ),
        pytest.param(
            {"gpumem": 30000, "gpu": 2},
            {},
            a_mig_device(),
            None,
            "1 has fewer NVIDIA devices with room than the 2 asked (best has 1)",
            id="mig, second instance",
        ),
    ],
)
def test_every_cause_has_a_phrase(
    limits: dict[str, Any], annotations: dict[str, str], device: Device | None, held: Grant | None, expected: str
) -> None:
    """With what is asked and the best there is, where that says something."""
    cluster = a_cluster(*([a_node("n1", device)] if device else []))
    if device is not None and device.mode == "mig":
        cluster.ledger.put_node(an_inventory("n1", device))
    if held:
        cluster.ledger.put(held)

    assert f"0 of 1 nodes: {expected}" == causes(
        cluster, a_pod("p", a_container(**{"gpu": 1, **limits}), annotations=annotations), "n1"
    )


def test_siblings_that_leave_too_little_are_told_so() -> None:
    """Each container alone would fit; the best device's amount would only confuse."""
    cluster = a_cluster(a_node("n1", a_device(memory_mib=5000)))
    pod = a_pod("p", a_container("a", gpu=1, gpumem=3000), a_container("b", gpu=1, gpumem=3000))

    assert "1 lacks 3000 MiB on any NVIDIA device beside the Pod's other containers" in causes(cluster, pod, "n1")


def test_missing_compute_is_that_of_the_container_that_asks_for_most() -> None:
    """Whichever of them asks for more memory, and perhaps for no compute at all."""
    cluster = a_cluster(a_node("n1", a_device(memory_mib=16000)))
    compute = a_container("a", gpu=1, gpumem=500, gpucores=60), a_container("b", gpu=1, gpumem=500, gpucores=60)
    pod = a_pod("p", *compute, a_container("c", gpu=1, gpumem=4000))

    assert "1 lacks 60 % compute on any NVIDIA device beside the Pod's other containers" in causes(cluster, pod, "n1")


def test_numa_and_quota_are_told_with_what_they_are_about() -> None:
    """Devices apart, and what the namespace may still take."""
    apart = a_cluster(a_node("n1", a_device("GPU-a", numa=0), a_device("GPU-b", numa=1)))
    bound = a_pod("p", a_container(gpu=2, gpumem=1000), annotations={"nvidia.com/numa-bind": "true"})
    assert "1 has no 2 NVIDIA devices with room on one NUMA node" in causes(apart, bound, "n1")

    limited = a_cluster(a_node("n1", a_device()))
    limited.quotas.put(
        {
            "metadata": {"namespace": "default", "name": "q"},
            "spec": {"hard": {"limits.nvidia.com/gpumem": "800", "limits.nvidia.com/gpucores": "50"}},
        }
    )
    assert "1 would exceed the namespace's quota (800 MiB and 50 % compute left)" in causes(limited, a_pod(), "n1")


def test_best_device_is_one_the_pod_may_have() -> None:
    """A device without a replica, or ruled out by UUID, has nothing to offer however much memory is left."""
    devices = a_device("GPU-a", memory_mib=500), a_device("GPU-b", count=1), a_device("GPU-c")
    cluster = a_cluster(a_node("n1", *devices))
    cluster.ledger.put(a_grant("u", "n1", a_share("GPU-b", 1)))

    assert "1 lacks 1000 MiB on any NVIDIA device (best has 500)" in causes(
        cluster, a_pod(annotations={"nvidia.com/nouse-gpuuuid": "GPU-c"}), "n1"
    )


def test_refusal_fits_into_an_event() -> None:
    """Names of Nodes may have 253 characters; they give way before a cause or a code does."""
    names = [f"{i}-{'x' * 240}" for i in range(9)]
    small = a_pod("p", a_container(gpu=1, gpumem=2000))
    text = refused(a_cluster(*(a_node(name, SMALL) for name in names)), small, *names)

    assert len(text.encode()) <= EVENT_LIMIT_BYTES
    assert text.endswith(f"9 nodes CardInsufficientMemory({names[0]},{names[1]},...)")
    assert "0 of 0 nodes" in refused(a_cluster(), small)


def test_rare_causes_are_counted_together() -> None:
    """A sentence of many causes is one nobody reads."""
    misfits = {f"n{rank}": Misfit.of_node(reason) for rank, reason in enumerate(PUBLIC_REASONS[:9])}
    cluster = a_cluster()
    request = a_request()

    assert summary(misfits, Facts(request, cluster.ledger, {})).endswith("3 for other reasons")


def test_choice_names_containers_devices_and_amounts() -> None:
    """One sentence a person understands; containers without devices are left out."""
    cluster = a_cluster(a_node("n1", a_device()))
    request = a_request(a_pod("p", a_container("web"), a_container("train", gpu=1, gpumem=3000, gpucores=25)))
    result = filter_nodes(request, ["n1"], cluster.view)

    expected = "default/p fits node n1 (binpack, score 0.00): train gets GPU-a (3000 MiB, 25 % compute)"
    assert expected == choice(request, result)
    with pytest.raises(ValueError, match="no Node was chosen"):
        choice(request, FilterResult(None))


def test_request_is_described_as_it_was_made() -> None:
    """A percentage stays one, whole compute is no more than that, and what is not asked is not told."""
    [rules] = [rules for rules in vendors() if rules.key == "NVIDIA"]

    assert "1 NVIDIA device with 50 % of the memory and 100 % compute" == describe(
        asks(0, 150, memory_percent=50), rules
    )
    assert "2 NVIDIA devices with 3000 MiB each" == describe(asks(3000, count=2), rules)


@pytest.mark.parametrize("case", by_name(DECIDED))
def test_every_vendors_refusals_have_sentences(case: dict[str, Any]) -> None:
    """Whatever a Node refuses for, there is a sentence with its numbers, and nothing in it is left to fill."""
    found = tried(case)
    misfits = {name: tried_ for name, tried_ in found.found.items() if isinstance(tried_, Misfit)}
    ledger, allowances = found.cluster.ledger, found.cluster.view.allowances(found.request)
    facts = Facts(found.request, ledger, allowances)
    texts = [node_sentence(name, misfit, facts) for name, misfit in misfits.items()]
    texts.append(refusal(found.request, misfits, ledger, allowances))

    assert all(texts)
    for text in texts:
        assert not re.search(r"None|[{}]|  | ,|\( ?\)|\b0 of its", text), text
        assert len(text.encode()) <= EVENT_LIMIT_BYTES
    told = sum(
        int(part.split()[0])
        for part in texts[-1].partition("; ")[0].partition(": ")[2].split(", ")
        if part[0].isdigit()
    )
    assert not misfits or len(misfits) == told


def test_shortfall_names_each_device() -> None:
    """With the Pod, the Node and the device."""
    text = short_by(a_grant("u1", "n1"), {"GPU-b": "is gone", "GPU-a": "is full"})

    assert "node n1 can no longer take default/pod-u1: device GPU-a is full, device GPU-b is gone" == text


def test_refusal_of_one_kind_becomes_an_event_once_in_a_while() -> None:
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
    monkeypatch.setattr(context, "_PODS_REMEMBERED", 2)
    book = EventBook()
    for uid in ("a", "b", "c"):
        book.is_news(uid, "memory", 0.0)

    assert not book.is_news("c", "memory", 1.0)
    assert book.is_news("a", "memory", 1.0)


def test_refusals_of_the_kinds_used_last_are_remembered() -> None:
    """The memory is bounded by kinds of requests; what is remembered is the same object."""
    memo, view = Memo(), a_cluster(a_node("n1", a_device(memory_mib=10))).view

    def failed_nodes(name: str, gpumem: int) -> object:
        """Return the answer about a Pod that fits nowhere."""
        request = a_request(a_pod(name, a_container(gpu=1, gpumem=gpumem)))
        return filter_nodes(request, ["n1"], view, search=memo.search(request, view)).refusal.failed_nodes

    first = failed_nodes("p", 11)
    assert first is failed_nodes("other-pod", 11)

    for gpumem in range(12, 30):
        failed_nodes("p", gpumem)
    assert first is not failed_nodes("p", 11)


def test_bind_carries_the_uid_and_every_annotation() -> None:
    """One Binding is the whole bind."""
    plan = plan_bind(a_grant("u1", "n1"), vendors(), 1700000000)

    assert "/api/v1/namespaces/default/pods/pod-u1/binding" == plan.path
    assert "u1" == plan.binding("7")["metadata"]["uid"]
    assert {
        "hami.io/vgpu-node": "n1",
        "hami.io/vgpu-time": "1700000000",
        "hami.io/bind-phase": "allocating",
        "hami.io/bind-time": "1700000000",
        "hami.io/vgpu-devices-allocated": "GPU-a,NVIDIA,1000,0:;",
        "hami.io/vgpu-devices-to-allocate": "GPU-a,NVIDIA,1000,0:;",
    } == plan.binding("7")["metadata"]["annotations"]


def test_bind_is_done_by_the_same_grant_on_the_same_pod() -> None:
    """A Pod elsewhere, replaced, or with another grant is not bound by this plan; what is consumed may differ."""
    plan = plan_bind(a_grant("uid-p", "n1"), vendors(), 1)
    consumed = {"hami.io/vgpu-devices-to-allocate": ";;"}

    assert plan.is_done_by(a_pod(node="n1", allocated="GPU-a,NVIDIA,1000,0:;", annotations=consumed))
    assert not plan.is_done_by(None)
    assert not plan.is_done_by(a_pod(node="n2", allocated="GPU-a,NVIDIA,1000,0:;"))
    assert not plan.is_done_by(a_pod(node="n1", allocated="GPU-b,NVIDIA,1000,0:;"))
    assert not plan.is_done_by(a_pod(node="n1", allocated="GPU-a,NVIDIA,1000,0:;", uid="other"))
    assert BindPlan("", "default", "p", "n1", {}).is_done_by(a_pod(node="n1"))


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
    text = refusal(a_request(a_pod("p", a_container())), {"n1": UNREGISTERED}, a_cluster().ledger, {})

    assert (
        "0 of 1 nodes: 1 offers no device; no available node, 1 nodes do not meet; 1 nodes node unregistered(n1)"
        == text
    )


def test_bind_says_nothing_of_vendors_that_were_not_asked() -> None:
    """One vendor's devices, one vendor's annotations; a vendor without a queue gets no queue."""
    rules = vendors()[0]
    other = replace(rules, vendor=replace(rules.vendor, key="Other", allocated_key="hami.io/other-allocated"))
    queueless = replace(rules, vendor=replace(rules.vendor, to_allocate_key=""))

    annotations = plan_bind(a_grant("u1", "n1", a_share()), (queueless, other), 1).annotations

    assert {"hami.io/vgpu-devices-allocated"} == {
        key for key in annotations if "allocate" in key and "phase" not in key
    }


def test_cause_is_what_comes_closest_to_fitting() -> None:
    """Devices of other types do not hide that the acceptable ones are full; every reason has its rank."""
    assert Reason.MEMORY is Misfit(((Reason.TYPE, 6), (Reason.MEMORY, 1), (Reason.CORDONED, 1)), 8).cause
    assert Reason.NUMA is Misfit(((Reason.COUNT, 1), (Reason.NUMA, 1)), 2).cause
    assert list(Reason) == [Misfit.of_node(reason).cause for reason in Reason]


def dcus(count: int, memory_mib: int = 16384) -> list[Device]:
    """Return *count* DCUs."""
    return [
        a_device(f"DCU-{number}", vendor="DCU", type="DCU", mode="", index=number, memory_mib=memory_mib)
        for number in range(count)
    ]


def of_two_vendors(
    gpus: list[Device], others: list[Device], *, gpu: int = 1, gpumem: int = 1000, dcu: int = 1, quota: bool = False
) -> tuple[str, str, str]:
    """Return why a Node with these devices refuses a container that asks both: as a cause, a sentence, and in codes."""
    node = a_node("n1", *gpus, hami_io__node_dcu_register=a_register(*others))
    node["status"]["allocatable"]["hygon.com/dcunum"] = "80"
    cluster = a_cluster(node)
    if quota:
        cluster.quotas.put(QUOTA)
    amounts = {"nvidia.com/gpu": gpu, "nvidia.com/gpumem": gpumem, "hygon.com/dcunum": dcu, "hygon.com/dcumem": 500}
    container = {"name": "c", "resources": {"limits": {key: str(value) for key, value in amounts.items()}}}
    request, view = a_request(a_pod("p", container)), cluster.view
    misfit = filter_nodes(request, ["n1"], view).refusal.misfits["n1"]
    facts = Facts(request, view.ledger, view.allowances(request))
    return summary({"n1": misfit}, facts), node_sentence("n1", misfit, facts), misfit.text


TWO = {
    "no-gpu": (
        partial(of_two_vendors, [], dcus(8)),
        "has fewer NVIDIA devices than the 1 asked",
        "has fewer NVIDIA devices than the 1 asked",
        "NodeInsufficientDevice",
    ),
    "few-gpus-more-dcus-asked": (
        partial(of_two_vendors, [a_device()], dcus(8), gpu=2, dcu=4),
        "has fewer NVIDIA devices than the 2 asked",
        "has fewer NVIDIA devices than the 2 asked",
        "NodeInsufficientDevice",
    ),
    "no-dcu": (
        partial(of_two_vendors, [a_device()], []),
        "has fewer DCU devices than the 1 asked",
        "has fewer DCU devices than the 1 asked",
        "NodeInsufficientDevice",
    ),
    "sick-dcus": (
        partial(of_two_vendors, [a_device()], [replace(dcus(1)[0], healthy=False)]),
        "has no healthy DCU device",
        "1 of 1 DCU device has failed",
        "1/1 CardNotHealth",
    ),
    "small-dcu": (
        partial(of_two_vendors, [a_device()], dcus(1, memory_mib=400)),
        "lacks 500 MiB on any DCU device (best has 400)",
        "1 of 1 DCU device lacks 500 MiB (best has 400)",
        "1/1 CardInsufficientMemory",
    ),
    "both": (
        partial(of_two_vendors, [a_device(memory_mib=900)], []),
        "lacks 1000 MiB on any NVIDIA device (best has 900)",
        "1 of 1 NVIDIA device lacks 1000 MiB (best has 900); has fewer DCU devices than the 1 asked",
        "1/1 CardInsufficientMemory, NodeInsufficientDevice",
    ),
    "both-and-a-quota": (
        partial(of_two_vendors, [a_device()], [], gpumem=6000, quota=True),
        "would exceed the namespace's quota (5000 MiB left)",
        "1 of 1 NVIDIA device would exceed the namespace's quota (5000 MiB left); "
        "has fewer DCU devices than the 1 asked",
        "1/1 ResourceQuotaNotFit, NodeInsufficientDevice",
    ),
    "both-and-a-quota-for-two": (
        partial(of_two_vendors, [a_device("GPU-a"), a_device("GPU-b")], [], gpu=2, gpumem=3000, quota=True),
        "has fewer NVIDIA devices with room than the 2 asked (best has 1)",
        "1 of 2 NVIDIA devices has room, but 2 are asked, 1 would exceed the namespace's quota (5000 MiB left); "
        "has fewer DCU devices than the 1 asked",
        "1/2 AllocatedCardsInsufficientRequest, 1/2 ResourceQuotaNotFit, NodeInsufficientDevice",
    ),
}


@pytest.mark.parametrize(("said", "cause", "sentence", "codes"), TWO.values(), ids=TWO)
def test_a_refusal_names_the_vendor_that_refuses(
    said: Callable[[], tuple[str, str, str]], cause: str, sentence: str, codes: str
) -> None:
    """A container asks devices of two vendors: each that refuses is named with its own numbers, the other is not."""
    assert (f"0 of 1 nodes: 1 {cause}", sentence, codes) == said()


def test_nodes_that_lack_another_vendor_are_counted_apart() -> None:
    """Equal reasons of two vendors are two causes."""
    nodes = [
        a_node("g1", a_device("GPU-1")),
        a_node("g2", a_device("GPU-2")),
        a_node("d1", hami_io__node_dcu_register=a_register(*dcus(1))),
    ]
    for node in nodes:
        node["status"]["allocatable"]["hygon.com/dcunum"] = "80"
    limits = {"nvidia.com/gpu": "1", "hygon.com/dcunum": "1"}
    pod = a_pod("p", {"name": "c", "resources": {"limits": limits}})

    assert (
        "0 of 3 nodes: 2 have fewer DCU devices than the 1 asked, 1 has fewer NVIDIA devices than the 1 asked"
        == causes(a_cluster(*nodes), pod, "g1", "g2", "d1")
    )
