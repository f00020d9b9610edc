"""
Whose shares they are: places of shares in a Pod, owners of replicas, pending Pods, and the mode of a Node.
"""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.announcement import announcement, withdrawal
from hami_device_plugin.decide.confirmation import confirmation
from hami_device_plugin.decide.health import health_policy
from hami_device_plugin.decide.mode import choose
from hami_device_plugin.decide.owner import Entry, Listed, OwnerError, contradiction, owner
from hami_device_plugin.decide.pending import (
    PendingError,
    PreferredRequest,
    chosen_by_kubelet,
    hint,
    is_pending,
    preferred,
    recipient,
    take_next,
)
from hami_device_plugin.decide.pods import PodContainer, assign, granted_shares, read_pod
from hami_device_plugin.decide.registration import Registration, reason_to_register
from hamicommon.config import NvidiaConfig
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, Device, Share
from hamicommon.vendors import nvidia
from hamicommon.wire.version import NEWEST, WireVersion

RESOURCE = "nvidia.com/gpu"
NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)
VENDOR = nvidia.vendor(NvidiaConfig(resource_count_name=RESOURCE))


def share(uuid: str = "GPU-a", memory_mib: int = 1000) -> Share:
    """Return a share of one device."""
    return Share(uuid, "NVIDIA", memory_mib, 10)


def shares(count: int) -> ContainerShares:
    """Return *count* shares."""
    return tuple(share(f"GPU-{number}") for number in range(count))


def container(requested: int, *, is_init: bool = False) -> PodContainer:
    """Return a container that asks for *requested* devices."""
    return PodContainer(f"c{requested}", requested, is_init, is_control_disabled=False)


def entry(pod: str, name: str, *replicas: str, cdi: str = "hami.io/vgpu=a-1") -> Entry:
    """Return what the kubelet remembers of one container."""
    return Entry(pod, name, RESOURCE, frozenset(replicas), (cdi,))


def a_pod(annotations: dict[str, str] | None = None, *, phase: str = "Pending", **spec: Any) -> Any:
    """Return a Pod of one container that asks for one device."""
    item = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "annotations": annotations or {}},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "resources": {"limits": {RESOURCE: "1"}}}]} | spec,
        "status": {"phase": phase},
    }
    return read_pod(item, RESOURCE)


# --- places ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("granted", "asked", "expected"),
    [
        pytest.param((1, 0, 2), (1, 0, 2), (1, 0, 2), id="by position"),
        pytest.param((1, 2, 0, 0), (1, 2), (1, 2), id="surplus empties"),
        pytest.param((2,), (0, 2), (0, 2), id="lost empties, HAMi 2899"),
        pytest.param((1, 2), (0, 1, 0, 2), (0, 1, 0, 2), id="lost empties between"),
        pytest.param((1, 1), (1, 0, 1), (1, 0, 1), id="lost empty in the middle"),
        pytest.param((), (1, 1), (0, 0), id="nothing granted"),
    ],
)
def test_shares_are_placed_with_the_containers_that_ask(
    granted: tuple[int, ...], asked: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """Numbers are shares per container."""
    placed = assign(tuple(map(shares, granted)), [container(count) for count in asked])

    assert expected == tuple(map(len, placed))


def test_shares_written_before_init_containers_counted_go_to_the_main_ones() -> None:
    """Schedulers before HAMi 2.9 granted nothing to init containers."""
    containers = [container(1, is_init=True), container(2)]

    assert ((), shares(2)) == assign((shares(2),), containers)


@pytest.mark.property
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_places_survive_the_loss_of_empty_ones(asked: list[int]) -> None:
    """Whatever the Pod asks, dropping the empty lists changes no container's shares."""
    containers = [container(count) for count in asked]
    whole = tuple(tuple(share(f"GPU-{place}-{n}") for n in range(count)) for place, count in enumerate(asked))

    assert whole == assign(whole, containers)
    assert whole == assign(tuple(granted for granted in whole if granted), containers)


@pytest.mark.parametrize("value", ["1", "t", "T", "TRUE", "true", "True"])
def test_control_is_disabled_by_gos_true(value: str) -> None:
    """Any of several entries of the variable counts."""
    env = [{"name": "CUDA_DISABLE_CONTROL", "value": "0"}, {"name": "CUDA_DISABLE_CONTROL", "value": value}]
    pod = a_pod(containers=[{"name": "main", "env": env}])

    assert pod.containers[0].is_control_disabled


@pytest.mark.parametrize("entry_", [{}, {"value": "yes"}, {"value": ""}, {"valueFrom": {"fieldRef": {}}}])
def test_control_stays_on_for_anything_else(entry_: dict[str, Any]) -> None:
    """References are not followed, as in HAMi."""
    pod = a_pod(containers=[{"name": "main", "env": [{"name": "CUDA_DISABLE_CONTROL"} | entry_]}])

    assert not pod.containers[0].is_control_disabled


# --- owners ---------------------------------------------------------------------------------------------------------


def test_owner_holds_exactly_the_replicas() -> None:
    """A container with more or fewer of them is not meant."""
    entries = [entry("a", "main", "r0", "r1"), entry("b", "main", "r2")]

    assert "b" == owner(frozenset({"r2"}), RESOURCE, entries).pod_uid
    with pytest.raises(OwnerError, match=r"no container .* holds exactly r0 of nvidia.com/gpu"):
        owner(frozenset({"r0"}), RESOURCE, entries)


def test_owner_of_another_resource_is_not_meant() -> None:
    """Replica IDs are names within one resource."""
    with pytest.raises(OwnerError):
        owner(frozenset({"r0"}), "amd.com/gpu", [entry("a", "main", "r0")])


def test_init_and_main_container_of_the_same_replicas_are_both_meant() -> None:
    """Each with the device of its own Allocate answer."""
    entries = [entry("a", "init", "r0", cdi="hami.io/vgpu=a-1"), entry("a", "main", "r0", cdi="hami.io/vgpu=a-2")]

    assert (("init", "a-1"), ("main", "a-2")) == owner(frozenset({"r0"}), RESOURCE, entries).devices


def test_two_pods_with_the_same_replicas_are_a_doubt() -> None:
    """The kubelet never writes that; if it did, nobody gets anything."""
    with pytest.raises(OwnerError, match="Pods a, b all hold r0"):
        owner(frozenset({"r0"}), RESOURCE, [entry("b", "main", "r0"), entry("a", "main", "r0")])


def test_container_allocated_another_way_has_no_device() -> None:
    """HAMi's plugin, or this one under the lock, answered for it."""
    assert (("main", None),) == owner(frozenset({"r"}), RESOURCE, [entry("a", "main", "r", cdi="x.y/z=1")]).devices


def test_list_that_names_another_pod_is_a_contradiction() -> None:
    """One common replica is enough; silence is none, because ordinary init containers are not listed."""
    replicas = frozenset({"r0", "r1"})

    assert contradiction(replicas, "ns", "a", []) is None
    assert contradiction(replicas, "ns", "a", [Listed("ns", "a", "main", frozenset({"r0"}))]) is None
    assert "the kubelet lists r1 for ns/b, its checkpoint for ns/a" == contradiction(
        replicas, "ns", "a", [Listed("ns", "b", "main", frozenset({"r1", "r2"}))]
    )


def test_allocation_for_another_node_is_not_believed() -> None:
    """The annotation was written for a Node the Pod did not get to."""
    pod = a_pod({"hami.io/vgpu-node": "n2", VENDOR.allocated_key: "GPU-a,NVIDIA,1,1:;"})

    with pytest.raises(HamiError, match="is 'n2', but it runs on Node 'n1'"):
        granted_shares(pod, "n1", VENDOR)


def test_confirmed_pod_is_not_written_again() -> None:
    """Phase, consumed allocation and label are all there."""
    item = a_pod({"hami.io/bind-phase": "allocating", VENDOR.to_allocate_key: "GPU-a,NVIDIA,1,1:;"})
    patch = confirmation(item, "n1", VENDOR)
    assert patch is not None
    done = read_pod({"metadata": patch["metadata"], "spec": {"containers": [{"name": "main"}]}}, RESOURCE)

    assert confirmation(done, "n1", VENDOR) is None


def test_node_name_too_long_for_a_label_is_left_out() -> None:
    """An invalid label value would make the API server refuse the whole patch."""
    patch = confirmation(a_pod(), "n" * 64, VENDOR)

    assert patch is not None
    assert {} == patch["metadata"]["labels"]


def test_hint_is_about_a_waiting_container_of_the_same_size() -> None:
    """The one that was bound first comes first; a wrong hint costs nothing."""
    waiting = {"hami.io/bind-phase": "allocating", "hami.io/vgpu-node": "n1"}
    early = a_pod(waiting | {"hami.io/bind-time": "1", VENDOR.to_allocate_key: "GPU-a,NVIDIA,1,1:GPU-b,NVIDIA,1,1:;"})
    late = a_pod(waiting | {"hami.io/bind-time": "2", VENDOR.to_allocate_key: "GPU-b,NVIDIA,1,1:;"})
    request = PreferredRequest(("GPU-a::0", "GPU-b::0"), (), 1)

    assert [["GPU-b::0"]] == hint([late, early], "n1", VENDOR, [request])
    assert [None] == hint([], "n1", VENDOR, [request])


# --- pending Pods ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="allocating"),
        pytest.param({"hami.io/bind-phase": "success"}, True, id="half allocated"),
        pytest.param({"hami.io/bind-phase": "failed"}, False, id="failed"),
        pytest.param({"hami.io/vgpu-node": "n2"}, False, id="for another node"),
    ],
)
def test_pod_is_pending_by_its_annotations(changes: dict[str, str], expected: bool) -> None:
    """Bound here, with a phase that waits."""
    bound = {"hami.io/bind-time": "1", "hami.io/bind-phase": "allocating", "hami.io/vgpu-node": "n1"}

    assert expected == is_pending(a_pod(bound | changes), "n1")
    assert not is_pending(a_pod(bound | changes, phase="Running"), "n1")


def test_containers_are_taken_in_order() -> None:
    """What is taken leaves an empty place."""
    place, granted, left = take_next(((), shares(2), shares(1)))

    assert (1, shares(2), ((), (), shares(1))) == (place, granted, left)
    with pytest.raises(PendingError, match="no pending device allocation found"):
        take_next(((), ()))


def test_list_without_a_container_has_no_recipient() -> None:
    """Three lists of a Pod of one container."""
    with pytest.raises(PendingError, match="list 2 of the allocation belongs to none of the Pod's 1 containers"):
        recipient((shares(1), shares(1), shares(1)), 2, [container(1)])


def test_kubelets_devices_take_the_schedulers_amounts() -> None:
    """Position by position."""
    uuid = "GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a8"

    assert (share(uuid),) == chosen_by_kubelet(shares(1), [f"{uuid}-9"])


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        pytest.param(
            PreferredRequest(("GPU-1::0", "GPU-0::1", "GPU-0::0"), (), 2), ["GPU-0::1", "GPU-1::0"], id="first"
        ),
        pytest.param(
            PreferredRequest(("GPU-0::0", "GPU-1::0"), ("GPU-1::5",), 2), ["GPU-1::5", "GPU-0::0"], id="must include"
        ),
        pytest.param(PreferredRequest(("GPU-0::0",), (), 2), None, id="no replica left"),
        pytest.param(PreferredRequest(("GPU-0::0",), (), 3), None, id="more than granted"),
    ],
)
def test_preferred_replicas_are_of_the_granted_devices(request_: PreferredRequest, expected: list[str] | None) -> None:
    """Two devices are granted, GPU-0 and GPU-1."""
    assert [expected] == preferred(((), shares(2)), [request_])


# --- the Node -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runtime", "kubelet", "problem", "expected"),
    [
        pytest.param("containerd://2.1.8", "v1.34.4", None, "identity", id="new"),
        pytest.param("cri-o://1.30.1", "v1.29.0", None, "identity", id="cri-o"),
        pytest.param("containerd://1.7.29", "v1.34.4", None, "lock", id="old containerd"),
        pytest.param("containerd://2.1.8", "v1.28.9", None, "lock", id="old kubelet"),
        pytest.param("docker://28.1.0", "v1.34.4", None, "lock", id="docker"),
        pytest.param("containerd://2.1.8", "v1.34.4", "no PodResources", "lock", id="no PodResources"),
        pytest.param("", "", None, "lock", id="unknown"),
    ],
)
def test_mode_is_identity_where_the_kubelet_and_the_runtime_have_cdi(
    runtime: str, kubelet: str, problem: str | None, expected: str
) -> None:
    """What is not known counts as no."""
    node = {"status": {"nodeInfo": {"containerRuntimeVersion": runtime, "kubeletVersion": kubelet}}}

    assert expected == choose("auto", node, problem).name


def test_configured_mode_is_not_questioned() -> None:
    """Whoever switched CDI on in an old containerd knows."""
    assert "identity" == choose("identity", {}, "anything").name


def test_old_schedulers_get_text_and_an_answer_to_each_request() -> None:
    """They wait for both; once answered nothing is written until they ask again."""
    arguments: dict[str, Any] = {"version": WireVersion.parse("2.7"), "is_identity": False}
    device = Device("GPU-a", 2, 100, 100, "NVIDIA A100", mode="hami-core")
    asked = {VENDOR.handshake_key: "Requesting_2026-08-21 06:20:39"}
    written = announcement([device], VENDOR, carried=asked, now=NOON, **arguments)

    assert {
        VENDOR.register_key: "GPU-a,2,100,100,NVIDIA-NVIDIA A100,0,true,0,hami-core:",
        VENDOR.handshake_key: "Reported 2026-08-21 12:00:00.000000 +0000 UTC",
    } == written
    carried = {key: value for key, value in written.items() if value is not None}
    assert {} == announcement([device], VENDOR, carried=carried, now=NOON, **arguments)


def test_answer_to_a_scheduler_has_one_fraction_of_a_second() -> None:
    """As Go writes its times."""
    now = NOON.replace(microsecond=250_000)
    written = announcement([], VENDOR, version=WireVersion.parse("2.7"), is_identity=False, carried={}, now=now)

    assert "Reported 2026-08-21 12:00:00.250000 +0000 UTC" == written[VENDOR.handshake_key]


def test_mark_of_identity_is_written_and_taken_back() -> None:
    """A Node that needs the lock must not carry it, and nobody must find it after the plugin stopped."""
    arguments: dict[str, Any] = {"version": NEWEST, "now": NOON}
    marked = announcement([], VENDOR, is_identity=True, carried={}, **arguments)

    assert "identity" == marked["hami.io/node-allocation"]
    carried = {"hami.io/node-allocation": "identity", VENDOR.register_key: "[]"}
    assert {"hami.io/node-allocation": None} == announcement(
        [], VENDOR, is_identity=False, carried=carried, **arguments
    )
    assert {"hami.io/node-allocation": None} == withdrawal(carried)
    assert {} == withdrawal({})


@pytest.mark.parametrize(
    ("disable", "enable", "xid", "expected"),
    [
        pytest.param("", "", 79, True, id="device error"),
        pytest.param("", "", 31, False, id="program's error"),
        pytest.param("79, 80", "", 79, False, id="disabled"),
        pytest.param("79", "79", 79, True, id="enabled wins"),
        pytest.param("", "ALL", 31, True, id="all enabled"),
        pytest.param("nonsense", "", 79, True, id="not a number"),
    ],
)
def test_xid_counts_by_the_two_lists(disable: str, enable: str, xid: int, expected: bool) -> None:
    """HAMi's rules for DP_DISABLE_HEALTHCHECKS and DP_ENABLE_HEALTHCHECKS."""
    assert expected == health_policy(disable, enable).is_critical(xid)


@pytest.mark.parametrize("disable", ["all", "xids", "79,ALL"])
def test_health_checks_can_be_switched_off(disable: str) -> None:
    """Enabling single XIDs does not switch them on again; enabling all does."""
    assert not health_policy(disable, "").is_on
    assert not health_policy(disable, "79").is_on
    assert health_policy(disable, "all").is_on


def test_configured_way_is_taken_whatever_the_node_says() -> None:
    """The operator may know what versions do not tell."""
    assert choose("identity", {}, "no PodResources").is_identity
    assert not choose("lock", {}, None).is_identity


def test_registration_that_works_is_left_alone() -> None:
    """A stream is open and the Node has what is healthy."""
    assert reason_to_register(Registration(600.0, 1, 2, "20")) is None
