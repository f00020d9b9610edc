"""What a Pod holds: Kubernetes' formula, and what its object says."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.values.grant import read_grant
from hamicommon.model import Share
from hamicommon.pod.amounts import AMOUNT_LIMIT, Amounts, amounts_over_time, base_uuid
from hamicommon.pod.containers import ContainerKind, inits_are_done
from hamicommon.wire.errors import DecodeError

from ..support.builders import a_container, a_pod, a_share, vendors
from ..support.hypothesis_profiles import profile

INIT, SIDECAR, APP = ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP


def held(kinds: tuple[ContainerKind, ...], *memory_mib: int, **options: Any) -> Amounts:
    """Return what containers of *kinds* with these amounts of one device hold of it."""
    shares = tuple((a_share(memory_mib=amount, core_percent=amount // 100),) for amount in memory_mib)
    return amounts_over_time(kinds, shares, **options)["GPU-a"]


@pytest.mark.parametrize(
    ("kinds", "memory_mib", "expected"),
    [
        pytest.param((APP, APP), (1000, 2000), Amounts(2, 3000, 30), id="app containers add up"),
        pytest.param((INIT, INIT, APP), (5000, 3000, 1000), Amounts(1, 5000, 50), id="init containers take turns"),
        pytest.param((INIT, APP, APP), (1000, 2000, 2000), Amounts(2, 4000, 40), id="the larger phase counts"),
        pytest.param((SIDECAR, APP), (1000, 2000), Amounts(2, 3000, 30), id="a sidecar stays beside the app"),
        pytest.param((SIDECAR, INIT, APP), (1000, 4000, 2000), Amounts(2, 5000, 50), id="and beside later inits"),
        pytest.param((INIT, SIDECAR, APP), (4000, 1000, 2000), Amounts(2, 4000, 40), id="but not beside earlier ones"),
        pytest.param((SIDECAR, SIDECAR), (1000, 2000), Amounts(2, 3000, 30), id="sidecars add up"),
    ],
)
def test_pod_holds_the_most_its_containers_need_at_one_time(
    kinds: tuple[ContainerKind, ...], memory_mib: tuple[int, ...], expected: Amounts
) -> None:
    """Each container counts while it runs, and the worst moment counts for the Pod (KEP-753)."""
    assert expected == held(kinds, *memory_mib)


def test_finished_init_containers_hold_nothing() -> None:
    """Once they are done only sidecars and app containers count."""
    assert Amounts(2, 3000, 30) == held((INIT, SIDECAR, APP), 9000, 1000, 2000, inits_are_done=True)


def test_entries_beyond_the_containers_count_as_app_containers() -> None:
    """A value with too many entries is counted in full: too much is safe, too little is not."""
    assert Amounts(2, 3000, 30) == held((APP,), 1000, 2000)


def test_negative_amounts_count_nothing_and_huge_ones_saturate() -> None:
    """A tenant who writes -1000 MiB into an annotation gains no room by it."""
    shares = ((Share("GPU-a", "NVIDIA", -1000, -5), Share("GPU-a", "NVIDIA", 2**40, 0)),)

    assert {"GPU-a": Amounts(2, AMOUNT_LIMIT, 0)} == amounts_over_time((APP,), shares)


def test_mig_slots_of_old_versions_count_for_their_device() -> None:
    """HAMi 2.5 to 2.9 wrote the slot behind the UUID; the device is in use all the same."""
    assert "GPU-a" == base_uuid("GPU-a[1-3]")
    assert "GPU-a[1" == base_uuid("GPU-a[1"), "what is no slot is a name"


@pytest.mark.property
@profile(100)
@given(st.lists(st.tuples(st.sampled_from(ContainerKind), st.integers(0, 10_000)), min_size=1, max_size=8))
def test_formula_is_the_largest_sum_of_containers_that_run_together(drawn: list[tuple[ContainerKind, int]]) -> None:
    """The running formula equals the definition: look at every moment of the Pod's life and sum who runs then."""
    drawn.sort(key=lambda pair: pair[0] is APP)
    moments = []
    for position, (kind, _) in enumerate(drawn):
        if kind is not APP:
            beside = [amount for other, amount in drawn[:position] if other is SIDECAR]
            moments.append(sum(beside) + drawn[position][1])
    moments.append(sum(amount for kind, amount in drawn if kind is not INIT))

    assert max(moments) == held(tuple(kind for kind, _ in drawn), *(amount for _, amount in drawn)).memory_mib


def test_unbound_pod_holds_nothing_whatever_its_annotations_say() -> None:
    """Allocation annotations count with a Node only; anyone may write them."""
    assert None is read_grant(a_pod(allocated="GPU-a,NVIDIA,1000,0:;"), vendors())


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pod_holds_nothing(phase: str) -> None:
    """Its containers will not run again."""
    assert None is read_grant(a_pod(node="n1", allocated="GPU-a,NVIDIA,1000,0:;", phase=phase), vendors())


@pytest.mark.parametrize("allocated", [None, ",,0,0:;"])
def test_pod_without_devices_of_ours_holds_replicas(allocated: str | None) -> None:
    """
    Another scheduler bound it, and its kubelet counts it all the same.

    HAMi up to 2.5 wrote entries without a UUID for containers without devices.
    """
    found = read_grant(a_pod(node="n1", allocated=allocated), vendors())

    assert found is not None
    assert ({}, (("nvidia.com/gpu", 1),)) == (found.amounts, found.replicas)
    assert None is read_grant(a_pod("p", {"name": "c"}, node="n1", allocated=allocated), vendors())


def test_unreadable_allocation_names_the_annotation() -> None:
    """The error names the place."""
    with pytest.raises(DecodeError, match=r"hami\.io/vgpu-devices-allocated, container 0, device 0"):
        read_grant(a_pod(node="n1", allocated="GPU-a,NVIDIA,1000:;"), vendors())


def test_lost_empty_entry_is_given_back_to_its_container() -> None:
    """HAMi 2.10 loses the entry of a container without devices (issue #2899): the share is the asking container's."""
    pod = a_pod(
        "p", a_container("web"), a_container("gpu", gpu=1), node="n1", allocated="GPU-a,NVIDIA,1000,0:;", uid="u"
    )
    grant = read_grant(pod, vendors())

    assert grant is not None
    assert ((), (a_share(),)) == grant.shares["NVIDIA"]


def test_shares_of_more_containers_than_ask_are_counted_all() -> None:
    """Where the Pod's requests cannot tell whose shares are whose, none is dropped."""
    pod = a_pod("p", a_container("a"), a_container("b"), node="n1", allocated="GPU-a,NVIDIA,1,0:;GPU-a,NVIDIA,2,0:;")
    grant = read_grant(pod, vendors())

    assert grant is not None
    assert {"GPU-a": Amounts(2, 3, 0)} == grant.amounts


def test_init_containers_are_done_when_every_ordinary_one_has_ended_well() -> None:
    """A sidecar among them runs on; a failed one will be tried again."""
    pod = a_pod(inits=[a_container("i0"), a_container("s0", sidecar=True), a_container("i1")])

    def with_exits(**codes: int) -> dict[str, Any]:
        statuses = [{"name": name, "state": {"terminated": {"exitCode": code}}} for name, code in codes.items()]
        return {**pod, "status": {"initContainerStatuses": statuses}}

    assert inits_are_done(with_exits(i0=0, i1=0))
    assert not inits_are_done(with_exits(i0=0))
    assert not inits_are_done(with_exits(i0=0, i1=1))
    assert not inits_are_done(a_pod())


@pytest.mark.parametrize(
    ("status", "are_done"),
    [
        ({"phase": "Running", "startTime": "2026-08-21T10:59:00Z"}, True),
        ({"phase": "Pending", "startTime": "2026-08-21T10:59:00Z"}, False),
        ({"phase": "Running"}, False),
        ({}, False),
    ],
)
def test_init_containers_without_a_status_are_done_once_the_pod_runs(status: dict[str, Any], are_done: bool) -> None:
    """A kubelet that rejects a Pod after its own restart takes the statuses away while the containers end."""
    assert are_done == inits_are_done({**a_pod(inits=[a_container("i0")]), "status": status})
    assert not inits_are_done({**a_pod(inits=[a_container("s0", sidecar=True)]), "status": status})


def test_unreadable_mig_annotation_means_no_known_instance() -> None:
    """The shares still count; the device is then closed to others."""
    pod = a_pod(node="n1", allocated="GPU-m,NVIDIA,9856,28:;", annotations={"hami.io/vgpu-mig-allocations": "[{"})
    grant = read_grant(pod, vendors())

    assert grant is not None
    assert () == grant.mig


def test_share_without_a_device_holds_nothing() -> None:
    """Older writers left placeholders for containers without devices."""
    assert {} == amounts_over_time((APP,), ((a_share(uuid=""),),))
