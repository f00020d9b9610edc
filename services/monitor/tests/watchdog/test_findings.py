"""
What is found on a Node, and what is not.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.host import DeviceProcess, HostDevice
from hami_monitor.decide.pods import MonitoredPod
from hami_monitor.decide.watchdog.findings import (
    TOLERANCE_BYTES,
    Evidence,
    Finding,
    HostProcess,
    Kind,
    Regions,
    find,
    grants,
    uses,
    with_library,
)
from hami_monitor.decide.watchdog.owners import PodOwner
from hamicommon.model import MigAllocation, MigPlacement, Share

from .values import GPU_A, GPU_B, MIB, a_device, a_granted_pod, a_place, a_process, an_owner

KEY = ContainerKey("u1", "main")


def found(
    *devices: HostDevice,
    processes: Collection[HostProcess] = (a_process(50),),
    owners: Mapping[str, PodOwner] | None = None,
    pods: Collection[MonitoredPod] = (a_granted_pod(),),
    pids: Mapping[ContainerKey, Collection[int]] | None = None,
    unread: Collection[ContainerKey] = (),
    unpreloaded: Collection[ContainerKey] = (),
    in_namespaces: Collection[ContainerKey] = (),
) -> dict[Evidence, str]:
    """Return what is found; without more arguments the Node has an honest process 50, which is 7 in its container."""
    granted = grants(pods, frozenset(unpreloaded), frozenset(in_namespaces))
    known = {process.program.pid: process for process in processes}
    seen = uses(devices, known, {"u1": an_owner()} if owners is None else owners, ("kube-system",))
    given_pids = {KEY: {7}} if pids is None else pids
    regions = Regions({key: frozenset(some) for key, some in given_pids.items()}, unread)
    return find(seen, granted, regions)


def kinds(evidence: Mapping[Evidence, str]) -> set[Kind]:
    """Return the kinds of *evidence*."""
    return {one.finding.kind for one in evidence}


NO_LIBRARY = a_process(50, has_library=False)
ABOVE = 3000 + TOLERANCE_BYTES // MIB + 1
CASES: dict[str, tuple[dict[str, Any], set[Kind]]] = {
    "honest": ({}, set()),
    "honest-by-the-pid-on-the-node": ({"pids": {KEY: {50}}}, set()),
    "maps-not-readable": ({"processes": [a_process(50, has_library=None)]}, set()),
    "no-library": ({"processes": [NO_LIBRARY], "pids": {}}, {Kind.LIBRARY_NOT_LOADED}),
    "no-library-but-its-pid-in-the-region": ({"processes": [NO_LIBRARY]}, {Kind.LIBRARY_NOT_LOADED}),
    "started-without-the-library": ({"processes": [NO_LIBRARY], "pids": {}, "unpreloaded": [KEY]}, set()),
    "mps-server": ({"processes": [replace(NO_LIBRARY, is_mps_server=True)], "pids": {}}, set()),
    "no-region": ({"pids": {}}, {Kind.NOT_IN_REGION}),
    "another-pid-in-the-region": ({"pids": {KEY: {8}}}, {Kind.NOT_IN_REGION}),
    "region-of-another-container": ({"pids": {ContainerKey("u2", "main"): {7}}}, {Kind.NOT_IN_REGION}),
    "region-that-cannot-be-read": ({"pids": {}, "unread": [KEY]}, set()),
    "process-has-ended": ({"processes": []}, set()),
    "process-of-the-node": ({"processes": [replace(a_process(50), group=None)]}, set()),
    "pod-not-known-yet": ({"owners": {}}, set()),
    "container-not-known-yet": ({"owners": {"u1": replace(an_owner(), containers={})}}, set()),
    "pod-without-a-grant": ({"pods": []}, {Kind.DEVICE_NOT_GRANTED}),
    "container-without-a-grant": ({"pods": [a_granted_pod(container="other")]}, {Kind.DEVICE_NOT_GRANTED}),
    "another-device": ({"pods": [a_granted_pod("u1", Share(GPU_B, "NVIDIA", 1, 0))]}, {Kind.DEVICE_NOT_GRANTED}),
    "claims-of-dra": ({"pods": [], "owners": {"u1": an_owner(has_claims=True)}}, set()),
    "exempt-namespace": ({"pods": [], "owners": {"u1": an_owner(namespace="kube-system")}}, set()),
    "pod-has-ended": ({"pods": [], "owners": {"u1": replace(an_owner(), is_ended=True)}}, set()),
    "library-switched-off": (
        {"processes": [NO_LIBRARY], "owners": {"u1": replace(an_owner(), without_library=frozenset({"main"}))}},
        set(),
    ),
}


@pytest.mark.parametrize(("given_", "expected"), [pytest.param(*case, id=name) for name, case in CASES.items()])
def test_kind_follows_from_the_driver_the_grant_and_the_region(given_: dict[str, Any], expected: set[Kind]) -> None:
    """One process on one device."""
    assert expected == kinds(found(a_device({50: 100}), **given_))


@pytest.mark.parametrize(("used_mib", "expected"), [(ABOVE - 1, set()), (ABOVE, {Kind.MEMORY_ABOVE_GRANT})])
def test_use_above_the_share_is_found_beyond_the_tolerance(used_mib: int, expected: set[Kind]) -> None:
    """The driver's own part of a process is not counted by the library, and is at most the tolerance."""
    assert expected == kinds(found(a_device({50: used_mib})))


def test_memory_and_devices_are_judged_also_without_the_library() -> None:
    """The driver's limit may be gone, and a device that was not granted is no matter of the library."""
    case: dict[str, Any] = {"processes": [NO_LIBRARY], "pids": {}, "unpreloaded": [KEY]}

    assert {Kind.MEMORY_ABOVE_GRANT} == kinds(found(a_device({50: ABOVE}), **case))
    assert {Kind.DEVICE_NOT_GRANTED} == kinds(found(a_device({50: 100}, GPU_B), **case))


def test_use_is_summed_over_the_processes_of_a_container() -> None:
    """The sentence has device, use, processes and share."""
    tolerated = 2 * TOLERANCE_BYTES // MIB
    pair = [a_process(50), a_process(51)]

    [(evidence, sentence)] = found(a_device({50: 1500, 51: 1501 + tolerated}), processes=pair).items()

    assert Evidence(Finding(Kind.MEMORY_ABOVE_GRANT, a_place())) == evidence
    used = 3001 + tolerated
    assert f"Container main has {used} MiB of device GPU-a in 2 processes, its share is 3000 MiB" == sentence


def test_container_without_the_library_is_held_to_its_memory() -> None:
    """Its author may switch the library off, but gets no more memory by it."""
    owner = replace(an_owner(), without_library=frozenset({"main"}))

    assert {Kind.MEMORY_ABOVE_GRANT} == kinds(found(a_device({50: ABOVE}), owners={"u1": owner}))


def test_share_of_no_memory_has_no_limit() -> None:
    """As in the library."""
    pod = a_granted_pod("u1", Share(GPU_A, "NVIDIA", 0, 0))

    assert {} == found(a_device({50: 40000}), pods=[pod])


def test_sentence_names_the_process_in_its_container_and_on_the_node() -> None:
    """People look for it from either side."""
    [sentence] = found(a_device({50: 100}), pids={}).values()

    expected = "is not in the container's region, so its use is not counted"
    assert f"Process 7 (50 on the Node) of container main uses device GPU-a but {expected}" == sentence


@pytest.mark.parametrize("uuid", [GPU_A, "MIG-a"])
def test_container_with_a_mig_instance_has_its_gpu(uuid: str) -> None:
    """The driver lists its processes under the GPU, and the instance holds its limits."""
    mig = MigAllocation(0, 0, GPU_A, "1g.5gb", MigPlacement(0, 1), "MIG-a", 1, 0)
    pod = a_granted_pod("u1", Share(uuid, "NVIDIA", 1, 0))
    dynamic, static = replace(pod, mig_allocations=(("main", mig),)), pod

    for granted in (dynamic, static) if uuid == "MIG-a" else (dynamic,):
        assert {} == found(a_device({50: ABOVE}), processes=[NO_LIBRARY], pods=[granted], pids={})


def test_only_processes_of_limited_devices_must_have_the_library() -> None:
    """No others are read for it."""
    processes = {50: a_process(50), 51: a_process(51)}
    seen = uses([a_device({50: 1}), a_device({51: 1}, GPU_B)], processes, {"u1": an_owner()}, ())

    assert [50] == [use.process.program.pid for use in with_library(seen, grants([a_granted_pod()]))]


amounts = st.integers(0, 3000)
containers = st.dictionaries(st.sampled_from(["u1", "u2", "u3"]), st.lists(amounts, max_size=4))


@given(containers, st.randoms(use_true_random=False), st.booleans())
@pytest.mark.property
def test_nothing_is_found_of_honest_containers(used_mib: dict[str, list[int]], random: Any, shows_own: bool) -> None:
    """However many processes they have, and in whatever order all is listed."""
    processes, listed, pids, pods = [], [], {}, []
    for number, (uid, amounts_mib) in enumerate(used_mib.items()):
        started = [a_process(100 * number + 50 + index, uid, own_pid=index + 1) for index in range(len(amounts_mib))]
        processes += started
        pairs = zip(started, amounts_mib, strict=True)
        listed += [DeviceProcess(process.program.pid, mib * MIB) for process, mib in pairs]
        pids[ContainerKey(uid, "main")] = [p.own_pid if shows_own else p.program.pid for p in started]
        pods.append(a_granted_pod(uid, Share(GPU_A, "NVIDIA", sum(amounts_mib), 25)))
    for some in (processes, listed, pods):
        random.shuffle(some)
    device = HostDevice(0, GPU_A, "NVIDIA T4", processes=tuple(listed))
    owners = {uid: an_owner(uid) for uid in used_mib}

    assert {} == found(device, processes=processes, owners=owners, pods=pods, pids=pids)


@pytest.mark.parametrize(
    ("computes_alone", "in_namespaces", "expected"),
    [(True, [KEY], {Kind.NOT_IN_NAMESPACE}), (False, [KEY], set()), (True, [], set())],
)
def test_program_outside_the_namespace_of_its_container_is_found(
    computes_alone: bool, in_namespaces: list[ContainerKey], expected: set[Kind]
) -> None:
    """One that computes without MPS, where MPS limits compute."""
    device = replace(a_device({}), processes=(DeviceProcess(50, 100 * MIB, computes_alone=computes_alone),))

    evidence = found(device, in_namespaces=in_namespaces)

    assert expected == kinds(evidence)
    assert all("outside its namespace of MPS" in sentence for sentence in evidence.values())


@pytest.mark.parametrize(
    ("are_alone", "in_namespaces", "expected"),
    [
        ((False, False), [KEY], {Kind.SEVERAL_IN_NAMESPACE}),
        ((False, True), [KEY], {Kind.NOT_IN_NAMESPACE}),
        ((False, False), [], set()),
    ],
)
def test_several_processes_of_one_namespace_are_found(
    are_alone: tuple[bool, bool], in_namespaces: list[ContainerKey], expected: set[Kind]
) -> None:
    """MPS limits each of them. One that computes without MPS is no client of the namespace."""
    listed = (DeviceProcess(50 + number, 100 * MIB, computes_alone=alone) for number, alone in enumerate(are_alone))
    processes = [a_process(50), a_process(51, own_pid=8)]

    evidence = found(
        replace(a_device({}), processes=tuple(listed)),
        processes=processes,
        pids={KEY: {7, 8}},
        in_namespaces=in_namespaces,
    )

    assert expected == kinds(evidence)
