"""
What the Node's annotations say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from device_plugin_builders import VENDOR

from hami_device_plugin.decide.announcement import Announced, announcement, withdrawal
from hamicommon.model import Device
from hamicommon.wire.node_devices import decode_node_devices
from hamicommon.wire.version import NEWEST, WireVersion

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)


def changes(
    devices: Sequence[Device], *, carried: Mapping[str, str], now: datetime, version: WireVersion, **facts: Any
) -> dict[str, str | None]:
    """Return the changes to annotations *carried* by a Node with *devices* and *facts*."""
    return announcement(Announced(tuple(devices), **facts), VENDOR, version=version, carried=carried, now=now)


def test_old_schedulers_get_text_and_an_answer_to_each_request() -> None:
    """They need both; nothing more is written until they ask again."""
    arguments: dict[str, Any] = {
        "version": WireVersion.parse("2.7"),
        "is_identity": False,
        "device_list": "envvar: r",
        "enforcement": "library: r",
    }
    device = Device("GPU-a", 2, 100, 100, "NVIDIA A100", mode="hami-core")
    asked = {VENDOR.handshake_key: "Requesting_2026-08-21 06:20:39"}
    written = changes([device], carried=asked, now=NOON, **arguments)

    assert {
        VENDOR.register_key: "GPU-a,2,100,100,NVIDIA-NVIDIA A100,0,true,0,hami-core:",
        VENDOR.handshake_key: "Reported 2026-08-21 12:00:00.000000 +0000 UTC",
        "hami.io/node-nvidia-device-list": "envvar: r",
        "hami.io/node-enforcement": "library: r",
    } == written
    carried = {key: value for key, value in written.items() if value is not None}
    assert {} == changes([device], carried=carried, now=NOON, **arguments)


def test_answer_to_a_scheduler_has_one_fraction_of_a_second() -> None:
    """The time has Go's form."""
    now = NOON.replace(microsecond=250_000)
    arguments: dict[str, Any] = {
        "version": WireVersion.parse("2.7"),
        "is_identity": False,
        "device_list": "envvar: r",
        "enforcement": "library: r",
    }
    written = changes([], carried={}, now=now, **arguments)

    assert "Reported 2026-08-21 12:00:00.250000 +0000 UTC" == written[VENDOR.handshake_key]


def found_owners(annotations: Mapping[str, str | None]) -> list[bool]:
    """Return for each device of an inventory whether it is marked."""
    return [device.finds_owners for device in decode_node_devices(annotations[VENDOR.register_key] or "")]


def test_mark_of_identity_is_written_and_taken_back() -> None:
    """A Node that needs the lock must not have it, and it must not stay after the plugin stops."""
    arguments: dict[str, Any] = {
        "version": NEWEST,
        "now": NOON,
        "device_list": "cdi-cri: r",
        "enforcement": "driver: r",
    }
    device = Device("GPU-a", 2, 100, 100, "NVIDIA A100", mode="hami-core")
    marked = changes([device], is_identity=True, carried={}, **arguments)

    assert [True] == found_owners(marked)
    carried = {key: value for key, value in marked.items() if value is not None}
    assert {} == changes([device], is_identity=True, carried=carried, **arguments)
    taken_back = changes([device], is_identity=False, carried=carried, **arguments)
    assert [False] == found_owners(taken_back)
    people = {"hami.io/node-nvidia-device-list": None, "hami.io/node-enforcement": None}
    left = changes([replace(device, healthy=False)], is_identity=False, carried=carried, **arguments)
    assert left | people == withdrawal(carried, VENDOR, NEWEST)
    assert left != taken_back


@pytest.mark.parametrize(
    "inventory", [None, "", "{", "[]", '[{"id":"GPU-a","count":2}]', "GPU-a,2,100,100,NVIDIA A100,0,true,0,hami-core:"]
)
def test_inventory_of_another_plugin_is_left_alone(inventory: str | None) -> None:
    """HAMi's plugin may have written it while this one was stopping."""
    assert {} == withdrawal({} if inventory is None else {VENDOR.register_key: inventory}, VENDOR, NEWEST)


def test_old_mark_is_removed() -> None:
    """Earlier versions wrote an annotation for it, which stayed when HAMi's plugin took over."""
    carried = {
        "hami.io/node-allocation": "identity",
        "hami.io/node-nvidia-device-list": "cdi-cri: r",
        "hami.io/node-enforcement": "driver: r",
        VENDOR.register_key: "[]",
    }
    arguments: dict[str, Any] = {"device_list": "cdi-cri: r", "enforcement": "driver: r", "version": NEWEST}

    assert {"hami.io/node-allocation": None} == changes([], is_identity=True, carried=carried, now=NOON, **arguments)


def test_mark_has_no_place_in_the_text_form() -> None:
    """The scheduler then locks the Node, and this plugin releases the lock."""
    device = Device("GPU-a", 2, 100, 100, "NVIDIA A100", mode="hami-core")
    arguments: dict[str, Any] = {
        "version": WireVersion.parse("2.7"),
        "is_identity": True,
        "device_list": "envvar: r",
        "enforcement": "library: r",
    }
    written = changes([device], carried={}, now=NOON, **arguments)

    assert [False] == found_owners(written)


@pytest.mark.parametrize("key", ["hami.io/node-nvidia-device-list", "hami.io/node-enforcement"])
def test_what_the_plugin_says_of_the_node_goes_with_it(key: str) -> None:
    """It is this plugin's, so it must not stay beside the inventory of the next one."""
    assert {key: None} == withdrawal({key: "cdi-cri: r", VENDOR.register_key: "[]"}, VENDOR, NEWEST)
