"""
What a Pod was granted, by every form that HAMi wrote: `vectors/pod`. Each service runs the same files.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hamicommon.config.device_config import load_device_config
from hamicommon.model import PodShares, Share
from hamicommon.pod.containers import ContainerKind, ContainerState
from hamicommon.pod.lists import granted
from hamicommon.pod.reading import Container, Pod, read_pod
from hamicommon.vendors.nvidia import ALLOCATED_KEY, KEY
from hamicommon.wire.pod_devices import decode_pod_devices

VECTORS = Path(__file__).parents[1] / "vectors"
VENDORS = load_device_config((VECTORS / "device-config/default.yaml").read_text()).vendors()
Json = dict[str, Any]


def cases(path: str) -> list[Any]:
    """Return the cases of a file, each under its name."""
    return [pytest.param(case, id=case["case"]) for case in json.loads((VECTORS / path).read_text("utf-8"))]


def by_container(pod: Pod, shares: PodShares) -> Json:
    """Return the shares of each container that has any, as the files write them."""
    named = zip(pod.containers, shares, strict=False)
    return {
        container.name: [[share.uuid, share.memory_mib, share.core_percent] for share in held]
        for container, held in named
        if held
    }


@pytest.mark.parametrize("vendor_key", [KEY, None], ids=["device-config", "usual-names"])
@pytest.mark.parametrize("case", cases("pod/grants.json"))
def test_each_list_goes_to_its_container_and_none_is_lost(case: Json, vendor_key: str | None) -> None:
    """A reader with the device config and one without say the same."""
    pod = read_pod(case["pod"], VENDORS if vendor_key else ())
    found = pod.granted(ALLOCATED_KEY, vendor_key)
    held = pod.amounts(found.shares) if pod.holds else {}

    assert case["shares"] == by_container(pod, found.shares)
    assert case["held"] == {uuid: [one.replicas, one.memory_mib, one.core_percent] for uuid, one in held.items()}
    if "instances" in case:
        places = [one.container_index for one in pod.mig_allocations(found)]
        assert case["instances"] == [pod.containers[place].name for place in places]


@pytest.mark.parametrize("case", cases("pod/variables.json"))
def test_variables_that_loosen_a_limit_are_read_once(case: Json) -> None:
    """The last entry of a name counts, except that any true entry switches the library off, as in HAMi."""
    item = {"spec": {"containers": [{"name": "main", "env": case["env"]}]}}
    [container] = read_pod(item).containers

    assert case["choices"] == container.choices
    assert case["priority"] == container.priority
    assert case["is_control_disabled"] is container.is_control_disabled


def some(count: int, place: int = 0) -> tuple[Share, ...]:
    """Return *count* shares."""
    return tuple(Share(f"GPU-{place}-{number}", "NVIDIA", 1000, 10) for number in range(count))


def containers(asked: Sequence[int]) -> tuple[Container, ...]:
    """Return app containers."""
    return tuple(Container(f"c{place}", ContainerKind.APP) for place in range(len(asked)))


@pytest.mark.property
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_owners_survive_the_loss_of_empty_lists(asked: list[int]) -> None:
    """Leaving out the empty lists changes no container's shares."""
    whole = tuple(some(count, place) for place, count in enumerate(asked))

    for lists in (whole, tuple(shares for shares in whole if shares), (*whole, ())):
        assert whole == granted(lists, containers(asked), lambda: [bool(count) for count in asked]).shares


A = (Share("GPU-a", "NVIDIA", 1000, 0),)
B = (Share("GPU-b", "NVIDIA", 2000, 0),)


@pytest.mark.parametrize(
    ("text", "requesting", "expected"),
    [
        pytest.param("GPU-a,NVIDIA,1000,0:;", [True], (A,), id="one container"),
        pytest.param(";GPU-a,NVIDIA,1000,0:;", [False, True], ((), A), id="in its place"),
        pytest.param("GPU-a,NVIDIA,1000,0:;", [False, True], ((), A), id="empty slot lost"),
        pytest.param(",,0,0:;GPU-a,NVIDIA,1000,0:;", [False, True], ((), A), id="placeholder"),
        pytest.param("GPU-a,NVIDIA,1000,0:;GPU-b,NVIDIA,2000,0:;", [True, False, True], (A, (), B), id="lost between"),
        pytest.param("GPU-a,NVIDIA,1000,0:;;;;", [True, False], (A, ()), id="surplus of consumptions"),
        pytest.param(";GPU-b,NVIDIA,2000,0:;;", [True, True], ((), B), id="first one consumed"),
        pytest.param(";;GPU-a,NVIDIA,1000,0:;", [True, False], (A, ()), id="beyond the last container"),
        pytest.param("", [True, True], ((), ()), id="nothing granted"),
    ],
)
def test_each_container_gets_its_shares(text: str, requesting: list[bool], expected: object) -> None:
    """One entry per container, whichever version wrote the value."""
    assert expected == granted(decode_pod_devices(text), containers(requesting), lambda: requesting).shares


KINDS = st.lists(st.sampled_from([*ContainerKind]), min_size=1, max_size=5)


@pytest.mark.property
@given(KINDS, st.lists(st.integers(0, 2), max_size=7), st.data())
def test_no_share_is_ever_lost(kinds: list[ContainerKind], sizes: list[int], data: st.DataObject) -> None:
    """Whatever the annotation holds and the containers ask, each share has exactly one container."""
    lists = tuple(some(size, place) for place, size in enumerate(sizes))
    asking = data.draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    pod = tuple(Container(f"c{place}", kind) for place, kind in enumerate(kinds))
    found = granted(lists, pod, lambda: asking)

    assert len(kinds) == len(found.shares)
    assert sorted(share.uuid for shares in lists for share in shares) == sorted(
        share.uuid for shares in found.shares for share in shares
    )


def test_pod_without_containers_has_no_shares() -> None:
    """The API server accepts no such Pod."""
    assert ((), {}) == (granted((some(1),), (), lambda: ()).shares, granted((), (), lambda: ()).owners)


def test_annotation_that_is_absent_grants_nothing() -> None:
    """The Pod was not granted anything by this vendor."""
    assert () == read_pod({"spec": {"containers": [{"name": "main"}]}}).granted(ALLOCATED_KEY).shares


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({}, ContainerState.WAITING),
        ({"waiting": {}}, ContainerState.WAITING),
        ({"running": {"startedAt": "2026-08-21T11:00:00Z"}}, ContainerState.RUNNING),
        ({"running": {}}, ContainerState.RUNNING),
        ({"terminated": {"exitCode": 0}}, ContainerState.SUCCEEDED),
        ({"terminated": {"exitCode": 137}}, ContainerState.FAILED),
    ],
)
def test_state_of_a_container_is_what_the_kubelet_says(state: Json, expected: ContainerState) -> None:
    """A container without a status waits."""
    status = {"containerStatuses": [{"name": "main", "state": state}]}
    [container] = read_pod({"spec": {"containers": [{"name": "main"}]}, "status": status}).containers

    assert expected is container.state


@pytest.mark.parametrize(("spec", "expected"), [({}, True), ({"hostUsers": True}, True), ({"hostUsers": False}, False)])
def test_pod_with_a_user_namespace_is_known(spec: Json, expected: bool) -> None:
    """There no hook may mark a file of the host, so its containers are not expected to be marked."""
    assert expected is read_pod({"spec": spec}).has_host_users
