"""
What is decided about claims: the ledger, the records, who may use them, and when a slice is written.
"""

from contextlib import suppress
from typing import Any

import pytest
from device_plugin_dra import a_claim, a_result, a_user
from hypothesis import given
from hypothesis import strategies as st

from hami_device_plugin.decide.allocate.capacity import CapacityError, claim_use
from hami_device_plugin.decide.dra.grant import ClaimError, cdi_devices, claim_grant
from hami_device_plugin.decide.dra.ledger import check_ledger
from hami_device_plugin.decide.dra.offer import PoolChange, next_slices, offered_devices
from hami_device_plugin.decide.dra.users import check_users, sharing_by_claims
from hami_device_plugin.decide.health.condition import Condition
from hamicommon.dra.claims import decode_claim
from hamicommon.dra.grants import ClaimGrant, GrantedResult, RecordError, decode_record, encode_record
from hamicommon.dra.slices import Description
from hamicommon.model import Device, Share
from hamicommon.pod.amounts import NOTHING, Amounts
from hamicommon.pod.reading import Pod, read_pod

NODE = {"metadata": {"name": "n1", "uid": "node-uid"}}
DEVICE = Device("GPU-0", count=3, memory_mib=4000, core_percent=200, type="NVIDIA T4")
OTHER = Device("GPU-1", count=3, memory_mib=4000, core_percent=200, type="NVIDIA T4", index=1)
DESCRIPTIONS = {"GPU-0": Description(0), "GPU-1": Description(1)}
NAMES = st.text(st.characters(codec="utf-8"), max_size=12)
RESULTS = st.builds(
    GrantedResult,
    NAMES,
    NAMES,
    NAMES,
    NAMES,
    st.builds(Share, st.sampled_from(["GPU-0", "GPU-1"]), st.just(""), st.integers(1, 3000), st.integers(0, 100)),
    st.integers(1, 2),
)
GRANTS = st.builds(ClaimGrant, NAMES, NAMES, NAMES, st.lists(RESULTS, max_size=3).map(tuple))


def a_pod(**spec: Any) -> Pod:
    """Return a Pod whose container uses the claim `c`."""
    return read_pod(a_user("c", **spec))


@pytest.mark.property
@given(GRANTS)
def test_record_is_read_as_it_was_written(grant: ClaimGrant) -> None:
    """Unprepare and the ledger work by it."""
    assert grant == decode_record(encode_record(grant))


@pytest.mark.property
@given(st.binary(max_size=60) | st.sampled_from([b"{}", b"[]", b'{"version":2}', b'{"version":1,"results":[1]}']))
def test_any_other_content_is_no_record(content: bytes) -> None:
    """A record that somebody damaged is an error of one kind."""
    with pytest.raises(RecordError):
        decode_record(content)


@pytest.mark.property
@given(st.lists(GRANTS, max_size=8, unique_by=lambda grant: grant.uid), st.integers(0, 4000))
def test_ledger_never_lets_a_device_give_more_than_it_has(grants: list[ClaimGrant], of_pods_mib: int) -> None:
    """Whatever was allocated, in whatever order the claims come."""
    devices = {device.id: device for device in (DEVICE, OTHER)}
    of_pods = {"GPU-0": Amounts(1, of_pods_mib, 10)}
    held: list[ClaimGrant] = []
    for grant in grants:
        with suppress(CapacityError):
            check_ledger(grant, held, of_pods, devices)
            held.append(grant)
    for uuid, device in devices.items():
        taken = of_pods.get(uuid, NOTHING)
        for grant in held:
            taken = taken.plus(claim_use(grant).amounts.get(uuid, NOTHING))
        assert taken.memory_mib <= device.memory_mib
        assert taken.core_percent <= device.core_percent
        assert taken.replicas <= device.count


def test_claim_is_not_counted_against_itself() -> None:
    """The kubelet repeats Prepare."""
    grant = claim_grant(decode_claim(a_claim("c")), "n1", {"hami-gpu-0": DEVICE})

    check_ledger(grant, [grant] * 9, {}, {"GPU-0": DEVICE})


def test_grant_of_the_same_allocation_is_the_same_whatever_its_device_has() -> None:
    """A result without amounts is of the whole device, which a changed setting scales."""
    claim = decode_claim(a_claim("c", a_result(consumedCapacity=None, shareID=None)))
    grants = [claim_grant(claim, "n1", {"hami-gpu-0": device}) for device in (DEVICE, OTHER)]

    assert grants[0] != grants[1]
    assert grants[0].is_same(grants[1])


def test_grant_of_another_allocation_of_the_claim_is_another() -> None:
    """Its share has another ID, and so have its CDI device and its region."""
    claims = [decode_claim(a_claim("c", a_result(share=share))) for share in ("s-1", "s-2")]
    first, second = (claim_grant(claim, "n1", {"hami-gpu-0": DEVICE}) for claim in claims)

    assert not first.is_same(second)
    assert cdi_devices(first, "gpu") != cdi_devices(second, "gpu")


def test_container_that_uses_another_claim_does_not_matter() -> None:
    """Nor does a privileged container that uses none."""
    check_users([a_pod(securityContext={"privileged": True})], "other", {("default", "c"): ["gpu"]})


def test_container_may_name_one_of_several_requests() -> None:
    """Then it gets that request's devices only."""
    requests = {("default", "c"): ["small", "large"]}

    check_users([read_pod(a_user("c", "a=small", "b=large"))], "c", requests)
    with pytest.raises(ClaimError, match="container main uses several requests: c/small, c/large"):
        check_users([a_pod()], "c", requests)


def test_shares_of_running_containers_are_those_of_their_claims() -> None:
    """The driver's limits are kept by them."""
    results = (a_result(request="small"), a_result(request="large", share="s-2", consumed={"memory": "2Gi"}))
    grant = claim_grant(decode_claim(a_claim("c", *results)), "n1", {"hami-gpu-0": DEVICE})
    pod = read_pod(a_user("c", "a=small", "b=large"))

    found = {container.name: shares for _, container, shares in sharing_by_claims([pod, a_pod_without()], [grant])}

    assert {"a": [700], "b": [2048]} == {name: [share.memory_mib for share in one] for name, one in found.items()}


def a_pod_without() -> Pod:
    """Return a Pod without claims."""
    return read_pod({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "main"}]}})


def test_slice_is_written_only_if_it_differs() -> None:
    """The times of taints, which the API server fills in, make no difference."""
    offered = offered_devices([OTHER, DEVICE], DESCRIPTIONS, {"GPU-1": Condition()})
    [first] = next_slices(NODE, offered, [], 4).write
    present = first | {"metadata": first["metadata"] | {"name": "s", "resourceVersion": "9"}}

    assert ["hami-gpu-0", "hami-gpu-1"] == [device["name"] for device in first["spec"]["devices"]]
    assert 5 == first["spec"]["pool"]["generation"]
    assert PoolChange() == next_slices(NODE, offered, [present], 5)


def test_slice_with_a_changed_device_replaces_the_one_that_was_read() -> None:
    """With a higher generation, and only if nobody has changed it meanwhile."""
    [first] = next_slices(NODE, offered_devices([DEVICE], DESCRIPTIONS, {}), [], 0).write
    present = first | {"metadata": first["metadata"] | {"name": "s", "resourceVersion": "9"}}

    [second] = next_slices(NODE, offered_devices([OTHER], DESCRIPTIONS, {}), [present], 1).write

    assert ("s", "9", 2) == (
        second["metadata"]["name"],
        second["metadata"]["resourceVersion"],
        second["spec"]["pool"]["generation"],
    )


def test_device_that_nobody_can_ask_has_a_taint_without_a_known_cause() -> None:
    """While the whole driver is silent or let go."""
    silent = Device("GPU-0", 3, 4000, 100, "T4", healthy=False)

    [offered] = offered_devices([silent], DESCRIPTIONS, {})

    assert ("unhealthy",) == offered.faults
