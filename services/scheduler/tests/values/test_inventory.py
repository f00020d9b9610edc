"""What a Node offers, in every form and with every flaw."""

import json
from typing import Any

import pytest

from hami_scheduler.values.inventory import UNKNOWN, read_inventory

from ..support.builders import a_device, a_node, a_register, vendors

KEY = "hami.io/node-nvidia-register"


def read(node: dict[str, Any], **options: Any) -> tuple[list[str], list[str]]:
    """Return the UUIDs offered and the reasons of what was left out."""
    inventory, problems = read_inventory(node, vendors(), **options)
    return [device.id for device in inventory.devices], [problem.reason for problem in problems]


def registered(**fields: object) -> dict[str, Any]:
    """Return a Node with one good device and one with *fields*."""
    good, odd = json.loads(a_register(a_device("GPU-good"), a_device("GPU-odd")))
    return a_node(hami_io__node_nvidia_register=json.dumps([good, {**odd, **fields}]))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("GPU-a,10,7680,100,NVIDIA-Tesla P4,0,true:", id="text of seven fields, 2.4"),
        pytest.param("GPU-a,10,7680,100,NVIDIA-Tesla P4,0,true,0,hami-core:", id="text of nine fields, 2.5 to 2.7"),
        pytest.param(
            '[{"id":"GPU-a","count":10,"devmem":7680,"devcore":100,"type":"T","health":true}]', id="JSON, 2.8"
        ),
    ],
)
def test_every_historic_form_is_read(text: str) -> None:
    """The form is told by content, so a device plugin of any version is understood."""
    assert (["GPU-a"], []) == read(a_node(hami_io__node_nvidia_register=text))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        pytest.param({"id": ""}, "empty id", id="no id"),
        pytest.param({"id": "GPU-good"}, "listed twice", id="same id"),
        pytest.param({"id": "GPU,x"}, "separator", id="id that no Pod annotation can hold"),
        pytest.param({"count": -1}, "count -1, which must be 0 or more", id="negative replicas"),
        pytest.param({"devmem": -5}, "memory_mib -5", id="negative memory"),
        pytest.param({"devcore": -100}, "core_percent -100", id="negative compute"),
    ],
)
def test_unsound_device_costs_only_itself(fields: dict[str, object], reason: str) -> None:
    """The Node keeps what is sound, and the reason is told."""
    uuids, problems = read(registered(**fields))

    assert ["GPU-good"] == uuids
    assert 1 == len(problems)
    assert reason in problems[0]


def test_device_says_which_vendor_it_is_of() -> None:
    """The vendor comes from the annotation's key, not from a word in the model's name."""
    inventory, _ = read_inventory(a_node("n1", a_device("GPU-a", type="A10 of nobody", vendor="")), vendors())

    assert ["NVIDIA"] == [device.vendor for device in inventory.devices]
    assert inventory.devices == inventory.devices_of("NVIDIA")
    assert () == inventory.devices_of("DCU")


def test_cordon_list_is_trimmed() -> None:
    """Members between commas, without blanks."""
    cordon: dict[str, Any] = {"hami_io__device_cordon": " GPU-a , ,GPU-b"}
    inventory, _ = read_inventory(a_node("n1", a_device(), **cordon), vendors())

    assert {"GPU-a", "GPU-b"} == inventory.cordoned


@pytest.mark.parametrize(
    ("marks", "needs_lock"),
    [([True], False), ([True, True], False), ([True, False], True), ([False], True), ([], True)],
)
def test_node_is_free_of_the_lock_if_its_inventory_says_so_of_every_device(marks: list[bool], needs_lock: bool) -> None:
    """The mark does not make a device another one."""
    devices = [a_device(f"GPU-{place}", finds_owners=mark) for place, mark in enumerate(marks)]
    inventory, _ = read_inventory(a_node("n1", *devices), vendors())

    assert needs_lock is inventory.needs_lock
    assert [False] * len(marks) == [device.finds_owners for device in inventory.devices]


def test_mark_of_earlier_versions_is_not_believed() -> None:
    """It stays where HAMi's plugin has taken over, which needs the lock."""
    old_mark: dict[str, Any] = {"hami_io__node_allocation": "identity"}
    inventory, _ = read_inventory(a_node("n1", a_device(), **old_mark), vendors())

    assert inventory.needs_lock


def test_unreadable_links_cost_only_the_links() -> None:
    """Devices without ratings are still devices."""
    good: dict[str, Any] = {"hami_io__node_nvidia_score": '[{"uuid":"GPU-a","score":{"GPU-b":100}}]'}
    inventory, problems = read_inventory(a_node("n1", a_device(), **good), vendors())
    assert ({"GPU-a": {"GPU-b": 100}}, ()) == (inventory.pair_scores, problems)

    bad: dict[str, Any] = {"hami_io__node_nvidia_score": "["}
    inventory, problems = read_inventory(a_node("n1", a_device(), **bad), vendors())
    assert ({}, 1, 1) == (inventory.pair_scores, len(inventory.devices), len(problems))


@pytest.mark.parametrize(
    ("amount", "expected"),
    [("40", 40), ("1k", 1000), ("-1", 0), ("x", 0), (8, 8)],
    ids=["digits", "suffix", "negative", "garbage", "a number"],
)
def test_allocatable_replicas_are_a_quantity(amount: object, expected: int) -> None:
    """Whatever the kubelet wrote, it is a count or nothing."""
    node = {"status": {"allocatable": {"nvidia.com/gpu": amount}}}

    inventory, _ = read_inventory(node, vendors())
    unknown, _ = read_inventory({}, vendors())
    assert inventory.replicas is not None
    assert unknown.replicas is not None
    assert (expected, UNKNOWN) == (inventory.replicas["nvidia.com/gpu"], unknown.replicas["nvidia.com/gpu"])
