"""
MIG instances in ResourceSlices: what is written is read, and a slice of another form is reported.
"""

from typing import Any

import pytest

from hamicommon.dra.grants import ClaimGrant, GrantedResult, decode_record, encode_record
from hamicommon.dra.partitions import Partition, encode_pool
from hamicommon.dra.slices import Description, OfferedDevice, read_slices
from hamicommon.model import Device, MigAllocation, MigPlacement, MigProfile, Object, Share

NODE = {"metadata": {"name": "n1", "uid": "node-uid"}}
PROFILE = MigProfile("3g.20gb", 19968, 43, 3, (MigPlacement(0, 4), MigPlacement(4, 4)))


def a_pool(*faults: str) -> list[Object]:
    """Return the slices of a Node with one GPU and two places for an instance: counters, then devices."""
    gpu = OfferedDevice(Device("GPU-a", 7, 40960, 100, "A100"), Description(0), faults)
    offered = [Partition(gpu, PROFILE, place, 42, is_occupied=place.start == 4) for place in PROFILE.placements]
    named = encode_pool(NODE, offered, 1)
    return [item | {"metadata": {"name": f"s{number}"}} for number, item in enumerate(named)]


def test_instance_is_read_as_a_part_of_its_gpu_with_its_place_and_taints() -> None:
    """Its GPU's faults close it, and so does what stands in its place."""
    pools, problems = read_slices(a_pool("lost"))

    assert () == problems
    first, second = pools["n1"]["hami-mig-0-3g-0"], pools["n1"]["hami-mig-0-3g-4"]
    assert MigAllocation(0, 0, "GPU-a", "3g.20gb", MigPlacement(0, 4)) == first.instance
    assert ("GPU-a", 1, 19968, 43) == (
        second.device.id,
        second.device.count,
        second.device.memory_mib,
        second.device.core_percent,
    )
    assert (("hami.io/device-lost",), ("hami.io/device-lost", "hami.io/device-occupied")) == (
        first.taints,
        second.taints,
    )


@pytest.mark.parametrize(
    ("field", "value", "place"),
    [
        ("consumesCounters", [], "consumesCounters"),
        ("consumesCounters", [{"counters": {"copy-engines": {}}}], "'copy-engines' is no memory slice"),
        ("consumesCounters", [{"counters": {"memory-slice-¹": {}}}], "is no memory slice"),
        ("consumesCounters", [{"counters": {"memory-slice-0": {}, "memory-slice-2": {}}}], "no memory slices in a row"),
        ("consumesCounters", [7], "consumesCounters: '7' is not an object"),
        ("parentUUID", {"string": "GPU,a"}, "attributes.parentUUID: 'GPU,a' has a separator"),
        ("profile", None, "attributes.profile"),
    ],
)
def test_instance_of_another_form_is_reported_with_its_place(field: str, value: Any, place: str) -> None:
    """A slice with one is left out, and its pool with it."""
    counters, devices = a_pool()
    item = devices["spec"]["devices"][0]
    (item if field in item else item["attributes"])[field] = value

    pools, [problem] = read_slices([counters, devices])

    assert {} == pools
    assert str(problem).startswith("ResourceSlice s1, spec.devices[0]")
    assert place in str(problem)


def test_record_keeps_an_instance_before_and_after_it_exists() -> None:
    """A record without one is as it was before there were instances."""
    place = MigPlacement(4, 4)
    share = Share("GPU-a", "", 19968, 43)
    for instance in (
        None,
        MigAllocation(0, 0, "GPU-a", "3g.20gb", place),
        MigAllocation(0, 0, "GPU-a", "3g.20gb", place, "MIG-1", 2, 0),
    ):
        grant = ClaimGrant("ns", "c", "u", (GrantedResult("gpu", "n1", "hami-mig-0-3g-4", "", share, 0, instance),))
        assert grant == decode_record(encode_record(grant))
        assert (instance is not None) == (b'"instance"' in encode_record(grant))
        named = instance is not None and instance.mig_uuid is not None
        assert (("MIG-1",) if named else ()) == grant.instances("gpu")
