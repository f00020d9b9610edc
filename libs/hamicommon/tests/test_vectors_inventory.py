"""
Inventories that HAMi wrote, and how it read them: `vectors/node-devices` and `vectors/pair-scores`.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from hamicommon.model import Device, MigPlacement, MigProfile
from hamicommon.wire.errors import DecodeError, EncodeError
from hamicommon.wire.node_devices import decode_node_devices, encode_node_devices
from hamicommon.wire.pair_scores import decode_pair_scores, encode_pair_scores
from hamicommon.wire.version import JSON_SINCE, WireVersion

VECTORS = Path(__file__).parents[1] / "vectors"
FREE_FORM = "custominfo"


def cases(path: str) -> list[Any]:
    """Return the cases of a file, each under its name."""
    return [pytest.param(case, id=case["case"]) for case in json.loads((VECTORS / path).read_text("utf-8"))]


def a_device(written: dict[str, Any]) -> Device:
    """Return the device that HAMi's JSON *written* describes."""
    profiles = tuple(
        MigProfile(
            profile["name"],
            profile["memoryMB"],
            profile["core"],
            profile["sliceCount"],
            tuple(MigPlacement(place["start"], place["size"]) for place in profile["placements"] or ()),
        )
        for profile in written.get("migProfiles", ())
    )
    return Device(
        id=written.get("id", ""),
        count=written.get("count", 0),
        memory_mib=written.get("devmem", 0),
        core_percent=written.get("devcore", 0),
        type=written.get("type", ""),
        index=written.get("index", 0),
        numa=written.get("numa", 0),
        mode=written.get("mode", ""),
        healthy=written.get("health", False),
        vendor=written.get("devicevendor", ""),
        mig_profiles=profiles,
        custom=written.get(FREE_FORM) or {},
    )


def assert_read_as(answer: dict[str, Any], text: str) -> None:
    """Check that *text* is refused where *answer* is an error, and yields its devices where not."""
    if "error" in answer:
        with pytest.raises(DecodeError):
            decode_node_devices(text)
    else:
        # Element null of a JSON list: HAMi 2.10 dies of it (no case records an answer), we leave it out.
        expected = tuple(a_device(written) for written in answer["value"] or () if written is not None)
        assert expected == decode_node_devices(text)


@pytest.mark.parametrize("case", cases("node-devices/written.json"))
def test_inventory_of_every_version_is_read_as_hami_reads_it(case: dict[str, Any]) -> None:
    """Each version's text for the same devices yields what HAMi 2.10 reads in it."""
    for written in case["texts"]:
        answer = written["decoded_by_v2.10.0"]
        assert_read_as({"value": case["devices"]} if answer == "same" else answer, written["text"])


@pytest.mark.parametrize("case", cases("node-devices/odd.json"))
def test_odd_inventory_is_read_as_hami_reads_its_form(case: dict[str, Any]) -> None:
    """A text whose first character is a bracket is JSON, any other is text, and each is read as HAMi does."""
    form = "json" if case["text"].lstrip(" \t\r\n").startswith("[") else "legacy"
    assert_read_as(case[form], case["text"])


@pytest.mark.parametrize("case", cases("node-devices/written.json"))
def test_inventory_is_written_as_each_version_writes_it(case: dict[str, Any]) -> None:
    """The text form is HAMi's byte for byte, the JSON form equal as JSON."""
    devices = [a_device(written) for written in case["devices"]]
    for written in case["texts"]:
        for writer in written["written_by"]:
            version_text, form = writer.split()
            version = WireVersion.parse(version_text)
            if form == "legacy":
                assert_text_is_written(written["text"], devices, version)
            elif form == "json-full":
                assert json.loads(written["text"]) == json.loads(encode_node_devices(devices, version, "Ascend910B3"))
            elif version >= JSON_SINCE:
                assert_json_is_written(written["text"], devices, version)


def assert_text_is_written(text: str, devices: list[Device], version: WireVersion) -> None:
    """Check the text form; a name that holds a separator is refused, as no version could read it back."""
    if any("," in name or ":" in name for device in devices for name in (device.id, device.type, device.mode)):
        with pytest.raises(EncodeError):
            encode_node_devices(devices, version, "DCU")
    else:
        assert text == encode_node_devices(devices, version, "DCU")


def assert_json_is_written(text: str, devices: list[Device], version: WireVersion) -> None:
    """Check the JSON form: HAMi's NVIDIA plugin drops the free-form part, which it never has; we never drop it."""
    ours = json.loads(encode_node_devices(devices, version))
    for device, entry in zip(devices, ours, strict=True):
        if device.custom:
            assert dict(device.custom) == entry.pop(FREE_FORM)
    assert json.loads(text) == ours


@pytest.mark.parametrize("case", cases("pair-scores/texts.json"))
def test_pair_scores_are_read_as_hami_reads_them(case: dict[str, Any]) -> None:
    """A list of scores yields a map by UUID; without scores it is empty."""
    answer = case["decoded_by_v2.10.0"]
    if "error" in answer:
        with pytest.raises(DecodeError):
            decode_pair_scores(case["text"])
    else:
        expected = {entry["uuid"]: entry["score"] or {} for entry in answer["value"] or ()}
        assert expected == decode_pair_scores(case["text"])
        assert expected == decode_pair_scores(encode_pair_scores(expected))
