"""
Which containers own the replicas of a PreStartContainer call.
"""

import pytest
from device_plugin_builders import RESOURCE, entry

from hami_device_plugin.decide.allocate.owner import Listed, OwnerError, contradiction, owner


def test_owner_holds_exactly_the_replicas() -> None:
    """A container with more or fewer of them is not the owner."""
    entries = [entry("a", "main", "r0", "r1"), entry("b", "main", "r2")]

    assert [entries[1]] == owner(frozenset({"r2"}), RESOURCE, entries)
    with pytest.raises(OwnerError, match=r"no container .* holds exactly r0 of nvidia.com/gpu"):
        owner(frozenset({"r0"}), RESOURCE, entries)


def test_owner_of_another_resource_is_not_meant() -> None:
    """Replica IDs are unique within one resource only."""
    with pytest.raises(OwnerError):
        owner(frozenset({"r0"}), "amd.com/gpu", [entry("a", "main", "r0")])


def test_init_and_main_container_of_the_same_replicas_are_both_meant() -> None:
    """Each has the device of its own Allocate answer."""
    entries = [entry("a", "init", "r0", cdi="hami.io/vgpu=a-1"), entry("a", "main", "r0", cdi="hami.io/vgpu=a-2")]

    found = owner(frozenset({"r0"}), RESOURCE, entries)

    assert [("init", "a-1"), ("main", "a-2")] == [(each.container, each.device) for each in found]


def test_two_pods_with_the_same_replicas_are_an_error() -> None:
    """The kubelet never writes that; if it did, neither Pod would get a device."""
    with pytest.raises(OwnerError, match="Pods a, b all hold r0"):
        owner(frozenset({"r0"}), RESOURCE, [entry("b", "main", "r0"), entry("a", "main", "r0")])


def test_container_allocated_another_way_has_no_device() -> None:
    """HAMi's plugin, or this one under the lock, answered for it."""
    [found] = owner(frozenset({"r"}), RESOURCE, [entry("a", "main", "r", cdi="x.y/z=1")])

    assert ("main", None) == (found.container, found.device)


def test_list_that_names_another_pod_is_a_contradiction() -> None:
    """One common replica suffices; a missing entry is none, because ordinary init containers are not listed."""
    replicas = frozenset({"r0", "r1"})

    assert contradiction(replicas, "ns", "a", []) is None
    assert contradiction(replicas, "ns", "a", [Listed("ns", "a", "main", frozenset({"r0"}))]) is None
    assert "the kubelet lists r1 for ns/b, its checkpoint for ns/a" == contradiction(
        replicas, "ns", "a", [Listed("ns", "b", "main", frozenset({"r1", "r2"}))]
    )
