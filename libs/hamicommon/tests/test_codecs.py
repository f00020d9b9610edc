"""
Cases that the vectors do not contain: versions, errors when writing, corner cases of each codec.
"""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from hamicommon.errors import HamiError
from hamicommon.model import Device, MigPlacement, MigProfile, Moment, NodeLock, Share
from hamicommon.wire.errors import DecodeError, EncodeError, quote
from hamicommon.wire.go import json_reader as json
from hamicommon.wire.go.json_writer import compact
from hamicommon.wire.go.strconv import parse_int
from hamicommon.wire.handshake import Handshake, HandshakeLayout, HandshakeState, encode_handshake
from hamicommon.wire.node_devices import NodeForm, decode_node_devices, encode_node_devices, node_form
from hamicommon.wire.node_lock import encode_node_lock
from hamicommon.wire.pod_devices import decode_pod_devices, encode_pod_devices
from hamicommon.wire.region.codec import Region, decode_region, encode_region
from hamicommon.wire.region.layout import LAYOUT_V1_2
from hamicommon.wire.version import NEWEST, OLDEST, WireVersion

NOON = datetime(2026, 8, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize("text", ["2.4", "2.10", "v2.7", "2.8.3", "v2.10.0"])
def test_version_from_2_4_to_2_10_is_accepted(text: str) -> None:
    """With or without a leading v and a patch number."""
    assert OLDEST <= WireVersion.parse(text) <= NEWEST


@pytest.mark.parametrize(
    "text", ["", "2", "2.3", "2.11", "3.0", "2.7-rc1", "2.7.1.2", " 2.7", "2.٧", "newest", "2." + "9" * 99]
)
def test_other_version_is_refused_with_the_range(text: str) -> None:
    """The message says what would be right."""
    with pytest.raises(DecodeError, match=r"not one of 2\.4 to 2\.10"):
        WireVersion.parse(text)


def test_versions_are_ordered_as_releases() -> None:
    """2.10 is newer than 2.9."""
    assert WireVersion.parse("2.9") < WireVersion.parse("2.10")


def test_every_refusal_is_one_of_ours() -> None:
    """A service catches one class of errors."""
    assert issubclass(DecodeError, HamiError)
    assert issubclass(EncodeError, HamiError)
    assert ("place", "reason") == (EncodeError("place", "reason").place, EncodeError("place", "reason").reason)


def test_quoted_text_is_one_printable_line_of_bounded_length() -> None:
    """For any text of a peer."""
    assert quote("a\n\x1b[31m\ud800" * 1000).isprintable()
    assert len(quote("\U0001f600" * 1000)) < 700


@pytest.mark.parametrize(
    ("text", "bits", "expected"),
    [
        ("9223372036854775807", 64, (1 << 63) - 1),
        ("-9223372036854775808", 64, -(1 << 63)),
        ("-2147483648", 32, -(1 << 31)),
    ],
)
def test_integer_at_its_bound_is_read(text: str, bits: int, expected: int) -> None:
    """The last number that fits does fit."""
    assert expected == parse_int(text, "here", bits)


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "9" * 100, "", "+", "-", "٣"])
def test_integer_beyond_its_bound_or_without_digits_is_refused(text: str) -> None:
    """Go's parser takes none of these."""
    with pytest.raises(DecodeError):
        parse_int(text, "here")


@pytest.mark.parametrize(
    ("version", "vendor", "form"),
    [
        ("2.4", "NVIDIA", NodeForm.TEXT_7),
        ("2.5", "NVIDIA", NodeForm.TEXT_9),
        ("2.7", "NVIDIA", NodeForm.TEXT_9),
        ("2.8", "NVIDIA", NodeForm.JSON),
        ("2.10", "DCU", NodeForm.TEXT_9),
        ("2.4", "DCU", NodeForm.TEXT_7),
        ("2.10", "MR-V100", NodeForm.TEXT_9),
        ("2.4", "Ascend910B3", NodeForm.JSON),
    ],
)
def test_inventory_has_the_form_of_its_version_and_vendor(version: str, vendor: str, form: NodeForm) -> None:
    """NVIDIA changed in 2.8, Hygon and Iluvatar never did, Ascend always wrote JSON."""
    assert form is node_form(WireVersion.parse(version), vendor)


def test_inventory_of_each_json_version_has_its_artefacts() -> None:
    """2.6 to 2.9 add an empty pair score, 2.10 the MIG profiles, 2.4 has neither mode nor free-form parts."""
    device = Device(
        "a", 1, 2, 3, "T", mode="mig", mig_profiles=(MigProfile("p", 1, 2, 3, (MigPlacement(0, 1),)),), custom={"x": 1}
    )
    pair_score = '"devicepairscore":{}'
    tail = '"devmem":2,"devcore":3,"type":"T"'
    profile = '"migProfiles":[{"name":"p","memoryMB":1,"core":2,"sliceCount":3,"placements":[{"start":0,"size":1}]}]'
    expected = {
        "2.4": f'[{{"id":"a","count":1,{tail},"health":true}}]',
        "2.5": f'[{{"id":"a","count":1,{tail},"mode":"mig","health":true,"custominfo":{{"x":1}}}}]',
        "2.9": f'[{{"id":"a","count":1,{tail},"mode":"mig","health":true,"custominfo":{{"x":1}},{pair_score}}}]',
        "2.10": f'[{{"id":"a","count":1,{tail},"mode":"mig",{profile},"health":true,"custominfo":{{"x":1}}}}]',
    }
    written = {
        version: encode_node_devices([device], WireVersion.parse(version), "Ascend910B3") for version in expected
    }
    assert expected == written


def test_inventory_that_would_be_read_as_json_is_not_written_as_text() -> None:
    """A reader recognises the form by the first character."""
    with pytest.raises(EncodeError, match="JSON"):
        encode_node_devices([Device("[a", 1, 1, 1, "T")], WireVersion(2, 7))


def test_index_that_no_reader_takes_is_not_written_as_text() -> None:
    """JSON has indexes of 64 bits without a sign, the text form has them with one."""
    with pytest.raises(EncodeError, match="field index"):
        encode_node_devices([Device("GPU-a", 1, 1, 1, "T", index=2**64 - 1)], WireVersion(2, 7))


def test_value_without_json_form_is_refused() -> None:
    """NaN has no JSON form, nor has a set."""
    for value in (float("nan"), {"a": {1, 2}}):
        with pytest.raises(EncodeError):
            compact(value)


def test_free_form_text_is_escaped_as_go_escapes_it() -> None:
    """A peer that compares texts sees no change."""
    assert '{"a":"\\u003c\\u003e\\u0026\\u2028é"}' == compact({"a": "<>&\u2028é"})


@pytest.mark.parametrize(
    "lock",
    [
        NodeLock(Moment.of(NOON), "default", None),
        NodeLock(Moment.of(NOON), None, "a"),
        NodeLock(Moment.of(NOON), "de,fault", "a"),
        NodeLock(Moment.of(NOON), "default", "a,b"),
        NodeLock(Moment.of(NOON.replace(tzinfo=None)), "default", "a"),
        NodeLock(Moment.of(NOON.replace(tzinfo=timezone(timedelta(seconds=90)))), "default", "a"),
    ],
)
def test_lock_that_no_reader_would_read_back_is_not_written(lock: NodeLock) -> None:
    """An incomplete owner, a comma in a name, a time without offset."""
    with pytest.raises(EncodeError):
        encode_node_lock(lock)


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("2.4", "Requesting_2026.08.21 06:20:39"),
        ("2.5", "Requesting_2026-08-21 06:20:39"),
        ("2.10", "Requesting_2026-08-21 06:20:39"),
    ],
)
def test_request_has_the_layout_of_its_version(version: str, expected: str) -> None:
    """2.5 changed the dots to dashes."""
    note = Handshake(HandshakeState.REQUESTING, Moment.at(2026, 8, 21, 6, 20, 39))
    assert expected == encode_handshake(note, WireVersion.parse(version))


def test_deleted_is_written_up_to_2_9_only() -> None:
    """2.10 removes the annotation instead."""
    note = Handshake(HandshakeState.DELETED, Moment.at(2026, 8, 21, 6, 20, 39), HandshakeLayout.DOTTED)
    assert "Deleted_2026-08-21 06:20:39" == encode_handshake(note, WireVersion(2, 9))
    with pytest.raises(EncodeError):
        encode_handshake(note, NEWEST)


def test_report_keeps_its_layout_in_every_version() -> None:
    """It is the plugin's text, not the scheduler's."""
    note = Handshake(HandshakeState.REPORTED, Moment.at(2026, 8, 21, 6, 20, 39), HandshakeLayout.DOTTED)
    assert "Reported_2026.08.21 06:20:39" == encode_handshake(note, NEWEST)


@pytest.mark.parametrize("share", [Share("a", "NVIDIA", 2**31, 0), Share("a", "NVIDIA", 0, -(2**31) - 1)])
def test_amount_that_no_reader_takes_is_not_written(share: Share) -> None:
    """A reader would reject all shares of the Pod, and count none of them."""
    with pytest.raises(EncodeError):
        encode_pod_devices(((share,),))


def test_share_without_uuid_is_not_written() -> None:
    """It would be read as no share."""
    with pytest.raises(EncodeError, match="uuid"):
        encode_pod_devices(((Share("", "NVIDIA", 1, 1),),))


def test_truth_value_and_text_survive_null() -> None:
    """A list's `null` items are zero values, as in Go."""
    kind = json.array(json.truth)
    assert (False, True, False) == json.decode("[null,true,false]", kind)
    assert ("", "a") == json.decode('[null,"a"]', json.array(json.string))
    assert (0, 1) == json.decode("[null,1]", json.array(json.whole_number(8)))


def test_amounts_of_many_sizes_are_read() -> None:
    """Many different types and amounts."""
    text = "".join(f"GPU-a,T{number},{number},{number}:" for number in range(200))
    [shares] = decode_pod_devices(text)
    assert [(f"T{number}", number, number) for number in range(200)] == [
        (share.type, share.memory_mib, share.core_percent) for share in shares
    ]


def test_negative_index_in_text_is_refused() -> None:
    """HAMi's one check of a sign."""
    with pytest.raises(DecodeError, match="negative"):
        decode_node_devices("GPU-a,10,7680,100,T,0,true,-1,mig:")


def deep(levels: int) -> str:
    """Return an inventory with an unknown key, nested *levels* deep in all."""
    return '[{"unknown":' + "[" * (levels - 2) + "]" * (levels - 2) + "}]"


def test_unknown_value_may_nest_as_deep_as_go_allows() -> None:
    """10000 levels are read without recursion, one more is refused."""
    kind = json.array(json.struct(Share("", "", 0, 0), {}))
    assert (Share("", "", 0, 0),) == json.decode(deep(10_000), kind)
    with pytest.raises(DecodeError, match="10000"):
        json.decode(deep(10_001), kind)


@pytest.mark.parametrize(
    "text",
    [
        '[{"u":[1,]}]',
        '[{"u":[1 2]}]',
        '[{"u":{"a":1,}}]',
        '[{"u":{"a" 1}}]',
        '[{"u":{1:2}}]',
        '[{"u":tru}]',
        '[{"u":[1}]',
        '[{"u":',
    ],
)
def test_unknown_value_must_still_be_json(text: str) -> None:
    """The syntax of skipped values is checked."""
    with pytest.raises(DecodeError):
        json.decode(text, json.array(json.struct(Share("", "", 0, 0), {})))


@pytest.mark.parametrize(
    "text", ['[{"u":{"a":[true,false,null,"x",{}],"b":{"c":-1.5e3}}}]', '[{"u":[[],{}]}]', ' [ { "u" : [ 1 , 2 ] } ] ']
)
def test_unknown_value_is_skipped(text: str) -> None:
    """Values of every type, with blanks between."""
    assert 1 == len(json.decode(text, json.array(json.struct(Share("", "", 0, 0), {}))))


def a_region(**changes: object) -> Region:
    """Return a region of the newest layout."""
    empty = decode_region(
        (19920718).to_bytes(4, "little")
        + (1).to_bytes(4, "little")
        + (2).to_bytes(4, "little")
        + bytes(LAYOUT_V1_2.region_size - 11)
    )
    return Region(**{**{name: getattr(empty, name) for name in Region.__slots__}, **changes})


def test_region_of_unknown_layout_is_not_written() -> None:
    """The error names the known layouts."""
    with pytest.raises(EncodeError, match=r"v1\.1-shifted"):
        encode_region(a_region(layout="v9"))


def test_region_with_a_number_too_large_is_not_written() -> None:
    """No field is cut silently."""
    with pytest.raises(EncodeError):
        encode_region(a_region(priority=1 << 40))


def test_region_whose_first_bytes_alone_are_there_is_refused() -> None:
    """The bytes count, not the size."""
    with pytest.raises(DecodeError):
        decode_region(b"")
