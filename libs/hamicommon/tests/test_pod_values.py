"""
What a Pod says of itself and its containers, beside its grants.
"""

from datetime import UTC, datetime
from typing import Any
from unittest.mock import Mock

import pytest

from hamicommon.model import Share
from hamicommon.pod.amounts import Amounts, sum_shares
from hamicommon.pod.containers import ContainerKind, ContainerState, ended_at, has_ended, moment
from hamicommon.pod.lists import extended_resources
from hamicommon.pod.reading import Container, Pod, read_pod
from hamicommon.pod.shape import AMOUNTS, check_shape
from hamicommon.wire.errors import DecodeError

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)


def a_pod(phase: str = "Running", annotations: dict[str, str] | None = None) -> Pod:
    """Return a bound Pod."""
    metadata = {"uid": "u", "namespace": "ns", "name": "p", "annotations": annotations or {}}
    return read_pod({"metadata": metadata, "spec": {"nodeName": "n", "containers": []}, "status": {"phase": phase}}, ())


def a_share(uuid: str, memory_mib: int = 100, core_percent: int = 5) -> Share:
    """Return a share of the device *uuid*."""
    return Share(uuid, "NVIDIA", memory_mib, core_percent)


@pytest.mark.parametrize(
    ("item", "problem"),
    [
        ({"metadata": [1]}, "Pod.metadata: must be an object, not list"),
        ({"spec": {"containers": 5}}, "Pod.spec.containers: must be a list, not int"),
        ({"spec": {"containers": [None]}}, r"Pod.spec.containers\[0\]: must be an object, not NoneType"),
        ({"spec": {"containers": [{"name": [1]}]}}, r"Pod.spec.containers\[0\].name: must be a string, not list"),
        ({"spec": {"initContainers": [{"env": [{"name": {}}]}]}}, r"env\[0\].name: must be a string, not dict"),
        ({"spec": {"containers": [{"resources": {"limits": 1}}]}}, "limits: must be an object, not int"),
        ({"status": {"containerStatuses": [{"name": {"a": 1}}]}}, r"Statuses\[0\].name: must be a string, not dict"),
    ],
)  # fmt: skip
def test_json_that_is_no_pod_is_an_error_with_the_place(item: dict[str, Any], problem: str) -> None:
    """A manifest or a body may have anything; the API server makes sure of the types."""
    with pytest.raises(DecodeError, match=problem):
        read_pod(item, ())


def test_amount_is_text_or_a_number() -> None:
    """As manifests have it; a truth value is no number."""
    for amount in ("1", 1, 0.5, None):
        check_shape(
            {"limits": {"cpu": "1"}, "more": amount}, {"limits": AMOUNTS, "more": (str, int, float)}, "resources"
        )
    with pytest.raises(DecodeError, match=r"resources\.cpu: must be a string or a whole number or a number, not bool"):
        check_shape({"cpu": True}, AMOUNTS, "resources")


def test_error_of_a_vendor_is_not_taken_for_one_of_the_pod() -> None:
    """What has the types of a Pod is read; anything else is our own mistake."""
    vendor = Mock(resource_set=frozenset({"nvidia.com/gpu"}), parse_request=Mock(side_effect=TypeError("ours")))
    with pytest.raises(TypeError, match="ours"):
        read_pod({"spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}, (vendor,))


def test_messages_name_a_pod_with_its_namespace() -> None:
    """As kubectl does."""
    assert "ns/p" == str(a_pod())


@pytest.mark.parametrize(
    ("phase", "has_started", "holds"),
    [
        ("", False, True),
        ("Pending", False, True),
        ("Running", True, True),
        ("Succeeded", True, False),
        ("Failed", True, False),
    ],
)
def test_phase_says_whether_a_pod_has_started_and_still_holds(phase: str, has_started: bool, holds: bool) -> None:
    """A Pod that has ended holds nothing although its object still exists."""
    pod = a_pod(phase)

    assert (has_started, holds, not holds) == (pod.has_started, pod.holds, pod.has_ended)
    assert pod.has_ended == has_ended({"status": {"phase": phase}})


def test_object_without_status_has_not_ended() -> None:
    """The API server stores it so until the kubelet writes."""
    assert not has_ended({})


@pytest.mark.parametrize(
    ("kind", "state", "may_run"),
    [
        (ContainerKind.INIT, ContainerState.SUCCEEDED, False),
        (ContainerKind.INIT, ContainerState.RUNNING, True),
        (ContainerKind.SIDECAR, ContainerState.SUCCEEDED, True),
        (ContainerKind.APP, ContainerState.SUCCEEDED, True),
    ],
)
def test_only_an_ordinary_init_container_that_succeeded_runs_no_more(
    kind: ContainerKind, state: ContainerState, may_run: bool
) -> None:
    """The kubelet may restart every other one."""
    assert may_run == Container("c", kind, state=state).may_run


def test_grant_that_cannot_be_read_is_an_error_that_names_its_annotation() -> None:
    """The Event of the Pod says where to look."""
    with pytest.raises(DecodeError) as refused:
        a_pod(annotations={"hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA"}).granted("hami.io/vgpu-devices-allocated")

    assert refused.value.place.startswith("hami.io/vgpu-devices-allocated")


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({}, None),
        ({"state": {"running": {"startedAt": "2026-08-21T12:00:00Z"}}}, None),
        ({"state": {"terminated": {"finishedAt": "2026-08-21T12:00:00Z"}}}, NOON),
    ],
    ids=["waiting", "running", "terminated"],
)
def test_only_a_terminated_container_has_ended(status: dict[str, Any], expected: datetime | None) -> None:
    """Its last run counts, not an earlier one."""
    assert expected == ended_at(status)


def test_text_that_is_no_moment_has_none() -> None:
    """A status can hold any text."""
    assert (NOON, None) == (moment("2026-08-21T12:00:00Z"), moment("noon"))


def test_amount_that_is_no_quantity_asks_for_nothing() -> None:
    """The API server refuses it, so only a made-up object has one."""
    limits = {"nvidia.com/gpu": "one", "nvidia.com/gpumem": "100", "cpu": "1", "requests.kubernetes.io/x": "1"}

    assert {"nvidia.com/gpumem": "100"} == extended_resources({"resources": {"limits": limits}})


def test_share_without_a_device_takes_nothing() -> None:
    """HAMi writes one for a container that asks for nothing."""
    assert {"GPU-a": Amounts(1, 100, 5)} == sum_shares((a_share(""), a_share("GPU-a")))


def test_slot_that_cannot_be_read_is_part_of_the_device() -> None:
    """The share counts for a device that no Node has."""
    assert ["GPU-a[x]", "GPU-b"] == list(sum_shares((a_share("GPU-a[x]"), a_share("GPU-b[1-3]"))))


@pytest.mark.parametrize(
    ("own", "pods", "host_users", "expected"),
    [
        ({"allowPrivilegeEscalation": False, "runAsUser": 1000}, {}, None, True),
        ({"allowPrivilegeEscalation": False}, {"runAsNonRoot": True}, None, True),
        ({"allowPrivilegeEscalation": False, "runAsUser": 0}, {"runAsUser": 1000}, None, False),
        ({"allowPrivilegeEscalation": False, "runAsNonRoot": False}, {"runAsNonRoot": True}, None, False),
        ({"allowPrivilegeEscalation": False}, {}, None, False),
        ({"runAsUser": 1000}, {"runAsNonRoot": True}, None, False),
        (None, {"runAsUser": 1000}, True, False),
        (None, None, False, True),
    ],
)
def test_container_is_never_root_if_no_program_of_its_image_can_be(
    own: Any, pods: Any, host_users: bool | None, expected: bool
) -> None:
    """The container's own setting wins. In a user namespace its root is none of the Node's."""
    spec = {"hostUsers": host_users, "securityContext": pods, "containers": [{"name": "main", "securityContext": own}]}

    [container] = read_pod({"spec": spec}).containers

    assert expected is container.is_never_root
