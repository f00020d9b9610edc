"""
What is found by the driver's count of a container's control group.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.watchdog.findings import (
    TOLERANCE_BYTES,
    Evidence,
    Finding,
    Kind,
    Regions,
    find,
    grants,
    uses,
)
from hami_monitor.decide.watchdog.group_use import find_in_groups, limited_places
from hamicommon.pod.control_groups import ContainerGroup

from .values import GPU_A, GPU_B, MIB, a_device, a_granted_pod, a_place, a_process, an_owner

KEY = ContainerKey("u1", "main")
TOLERATED = TOLERANCE_BYTES // MIB


def found(
    used_mib: int,
    *,
    counted_mib: int = 0,
    listed: Mapping[int, int] | None = None,
    unpreloaded: bool = False,
    unread: bool = False,
    margin_mib: int = 0,
    **process: Any,
) -> dict[Evidence, str]:
    """Return what is found of a container with a share of 3000 MiB of GPU_A, *used_mib* by its control group."""
    granted = grants([a_granted_pod()], frozenset({KEY} if unpreloaded else ()))
    owners = {"u1": an_owner()}
    regions = Regions(
        pids={KEY: frozenset({7})}, unread=[KEY] if unread else (), used_bytes={KEY: {GPU_A: counted_mib * MIB}}
    )
    known = {pid: replace(a_process(pid), **process) for pid in listed or ()}
    seen = uses([a_device(listed or {})], known, owners, ())
    by_process = find(seen, granted, regions)
    return find_in_groups({a_place(): used_mib * MIB}, seen, owners, granted, regions, by_process, margin_mib)


CASES: dict[str, tuple[dict[str, Any], set[Kind]]] = {
    "counted": ({"used_mib": 3000, "counted_mib": 3000}, set()),
    "nothing": ({"used_mib": 0}, set()),
    "tolerated": ({"used_mib": TOLERATED}, set()),
    "outside-any-region": ({"used_mib": TOLERATED + 1}, {Kind.NOT_IN_REGION}),
    "tolerated-for-each-process": ({"used_mib": 2 * TOLERATED, "listed": {50: 1, 51: 1}}, set()),
    "beside-an-honest-process": ({"used_mib": 2000, "counted_mib": 1000, "listed": {50: 1}}, {Kind.NOT_IN_REGION}),
    "process-named-already": ({"used_mib": 2000, "listed": {50: 1}, "own_pid": 8}, set()),
    "mps-server": ({"used_mib": 2000, "listed": {50: 1}, "is_mps_server": True}, set()),
    "region-that-cannot-be-read": ({"used_mib": 2000, "unread": True}, set()),
    "started-without-the-library": ({"used_mib": 2000, "unpreloaded": True}, set()),
    "above-its-share": ({"used_mib": 3001, "counted_mib": 3000}, {Kind.MEMORY_ABOVE_GRANT}),
    "within-the-operators-margin": ({"used_mib": 3400, "counted_mib": 3000, "margin_mib": 400}, set()),
    "above-the-operators-margin": (
        {"used_mib": 3401, "counted_mib": 3000, "margin_mib": 400},
        {Kind.MEMORY_ABOVE_GRANT},
    ),
    "above-its-share-without-the-library": ({"used_mib": 3001, "unpreloaded": True}, {Kind.MEMORY_ABOVE_GRANT}),
}


@pytest.mark.parametrize(("given", "expected"), [pytest.param(*case, id=name) for name, case in CASES.items()])
def test_kind_follows_from_the_control_group_the_grant_and_the_region(
    given: dict[str, Any], expected: set[Kind]
) -> None:
    """The driver stops a container at its share, so one byte more says that its limit was changed."""
    assert expected == {one.finding.kind for one in found(**given)}


def test_sentence_has_what_the_driver_and_the_region_count() -> None:
    """No process is named, because the driver may list none."""
    [(evidence, sentence)] = found(2000, counted_mib=100).items()

    assert Evidence(Finding(Kind.NOT_IN_REGION, a_place())) == evidence
    used = "Container main has 2000 MiB of device GPU-a by its control group"
    assert f"{used}, and only 100 MiB are in its region, so the rest is not counted" == sentence


def test_only_running_containers_with_a_share_are_asked_about() -> None:
    """On devices that were read, and outside the exempt namespaces."""
    owners = {"u1": an_owner("u1", "main", "other"), "u2": replace(an_owner("u2"), is_ended=True)}
    owners |= {"u3": an_owner("u3", namespace="kube-system")}
    granted = grants([a_granted_pod("u1"), a_granted_pod("u2"), a_granted_pod("u3")])

    asked = limited_places(granted, owners, ("kube-system",), (GPU_A, GPU_B))

    assert {a_place(): ContainerGroup("u1", "u1/main")} == asked
    assert {} == limited_places(granted, owners, ("kube-system",), (GPU_B,))
