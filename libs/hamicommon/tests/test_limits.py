"""
Hostile texts are refused, or read in memory and time in proportion to their size.
"""

import json
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hamicommon.wire.device_lists import type_allowed, uuid_allowed
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.handshake import decode_handshake
from hamicommon.wire.limits import MAX_CHARACTERS
from hamicommon.wire.mig import decode_mig_allocations, decode_mig_suffix
from hamicommon.wire.node_devices import decode_node_devices
from hamicommon.wire.node_lock import decode_node_lock
from hamicommon.wire.pair_scores import decode_pair_scores
from hamicommon.wire.pod_devices import decode_pod_devices
from hamicommon.wire.policies import decode_device_policies, decode_scoring_weights
from hamicommon.wire.region.codec import decode_region

SIZE = 40_000
DECODERS: dict[str, Callable[[str], Any]] = {
    "node-devices": decode_node_devices,
    "pair-scores": decode_pair_scores,
    "pod-devices": decode_pod_devices,
    "mig-allocations": decode_mig_allocations,
    "mig-suffix": decode_mig_suffix,
    "node-lock": decode_node_lock,
    "handshake": decode_handshake,
    "scoring-weights": decode_scoring_weights,
    "policies": decode_device_policies,
    "uuids": lambda text: uuid_allowed(text, text, "GPU-a"),
    "models": lambda text: type_allowed(text, text, "A100"),
}


def repeated(piece: str, head: str = "", tail: str = "") -> str:
    """Return about SIZE characters of *piece*."""
    return head + piece * (SIZE // len(piece)) + tail


def numbered(form: str, head: str = "", tail: str = "") -> str:
    """Return about SIZE characters of *form*, each with another number in place of `#` (hexadecimal) and `@`."""
    count = SIZE // (len(form) + 3)
    return head + "".join(form.replace("#", f"{number:x}").replace("@", str(number)) for number in range(count)) + tail


MIG = '{"containerIndex":#N,"gpuUUID":"G","profile":"p","placement":{"size":1}},'
TEXTS = {
    "semicolons": repeated(";"),
    "colons": repeated(":"),
    "commas": repeated(","),
    "brackets": repeated("["),
    "braces": repeated('{"a":'),
    "list-of-braces": repeated('{"a":', "["),
    "digits": repeated("9"),
    "zeros": repeated("0"),
    "quotes": repeated('"'),
    "backslashes": repeated("\\", '["'),
    "blanks": repeated(" "),
    "blanks-then-bracket": repeated(" ", tail="["),
    "nuls": repeated("\0"),
    "surrogates": repeated("\ud800"),
    "underscores": repeated("_", "Requesting_"),
    "go-time-zone": repeated("x", "Reported 2025-09-05 10:12:02 +0000 "),
    "fraction": repeated("1", "2026-08-21T06:20:39."),
    "day-separators": repeated(" ", "Requesting_2026-08-21"),
    "equals": repeated("=", "slot=1,core=1,memory="),
    "dashes": repeated("-", "GPU-a[", "]"),
    "empty-devices": repeated("{},", "[", "{}]"),
    "null-devices": repeated("null,", "[", "null]"),
    "devices": numbered('{"id":"#"},', "[", "{}]"),
    "devices-that-count": numbered('{"count":1#},'.replace("1#", "1"), "[", "{}]"),
    "devices-as-text": numbered("#,0,0,0,,0,0:"),
    "shares": numbered("#,,0,0:"),
    "shares-in-containers": numbered("#,,0,0:;"),
    "shares-of-many-types": numbered("#,#,1000,1000:;"),
    "placeholders": repeated(",,0,0:"),
    "one-share": repeated("a,,0,0:"),
    "shares-that-alternate": repeated("a,,0,0:b,,0,0:"),
    "profiles": repeated("{},", '[{"migProfiles":[', "{}]}]"),
    "named-profiles": numbered('{"name":"#"},', '[{"migProfiles":[', "{}]}]"),
    "placements": numbered('{"start":1},', '[{"migProfiles":[{"placements":[', "{}]}]}]"),
    "templates": repeated("[{}],", '[{"migtemplate":[', "[]]}]"),
    "custom-lists": repeated("[],", '[{"custominfo":{"a":[', "[]]}}]"),
    "custom-maps": repeated("{},", '[{"custominfo":{"a":[', "{}]}}]"),
    "custom-numbers": repeated("1000,", '[{"custominfo":{"a":[', "1]}}]"),
    "custom-floats": repeated("0.5,", '[{"custominfo":{"a":[', "1]}}]"),
    "custom-texts": numbered('"#",', '[{"custominfo":{"a":[', "1]}}]"),
    "custom-keys": numbered('"#":0,', '[{"custominfo":{', '"":0}}]'),
    "custom-again-and-again": numbered('"custominfo":{"#":0},', "[{", '"id":""}]'),
    "profiles-again-and-again": repeated('"migProfiles":[{},{}],', "[{", '"id":""}]'),
    "custom-long-number": repeated("9", '[{"custominfo":{"a":', "}}]"),
    "custom-nested": repeated("[", '[{"custominfo":{"a":'),
    "unknown-lists": repeated("[],", '[{"a":[', "[]]}]"),
    "unknown-nested": repeated("[", '[{"a":', "]"),
    "unknown-keys": numbered('"#":0,', "[{", '"":0}]'),
    "escapes": repeated("\\u4e2d", '[{"id":"', '"}]'),
    "wide-text": repeated("\U0001f600", '[{"id":"', '"}]'),
    "long-key": repeated("k", '[{"', '":1}]'),
    "long-name": repeated("n", "", ",1,1,1,T,0,true:"),
    "long-unknown-number": repeated("9", '[{"a":', "}]"),
    "long-known-number": repeated("9", '[{"count":', "}]"),
    "many-scores": numbered('"#":0,', '[{"uuid":"a","score":{', '"":0}}]'),
    "score-lists": numbered('{"uuid":"#"},', "[", "{}]"),
    "allocations": "[" + "".join(MIG.replace("#N", str(n)) for n in range(SIZE // len(MIG))) + "{}]",
}


def most_memory(decode: Callable[[Any], Any], text: Any) -> int:
    """Return the largest number of bytes that *decode* holds at a time, with its value."""
    tracemalloc.start()
    try:
        with suppress(DecodeError):
            decode(text)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def calls(decode: Callable[[Any], Any], text: Any) -> int:
    """Return how many functions *decode* calls."""
    count = 0

    def profile(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        with suppress(DecodeError):
            decode(text)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("name", TEXTS)
def test_refusal_of_hostile_text_is_one_short_line(name: str) -> None:
    """It fits a log or a terminal."""
    for decode in DECODERS.values():
        try:
            decode(TEXTS[name])
        except DecodeError as error:
            message = str(error)
        else:
            message = ""
        assert "\n" not in message
        assert message.isprintable()
        assert len(message) < 1000


@pytest.mark.parametrize("name", TEXTS)
def test_hostile_text_takes_at_most_ten_times_its_size(name: str) -> None:
    """In every format."""
    text = TEXTS[name]
    size = len(text.encode("utf-8", "surrogatepass"))
    taken = {format_: most_memory(decode, text) for format_, decode in DECODERS.items()}
    assert {} == {format_: used / size for format_, used in taken.items() if used > 10 * size}


NAME = st.sampled_from(["#", "#é", "#\U0001f600", "", "a", "#" + "x" * 9])
AMOUNT = st.sampled_from(["0", "1000", "1@", "1000@", "-1@"])
PADDING = st.sampled_from(["", ",", ",,,,,", ",éé"])
SHARE = st.builds("{},{},{},{}{}:{}".format, NAME, NAME, AMOUNT, AMOUNT, PADDING, st.sampled_from(["", ";", ";;"]))
DEVICE = st.builds("{},{},{},{},{},{},true,{},{}:".format, NAME, AMOUNT, AMOUNT, AMOUNT, NAME, AMOUNT, AMOUNT, NAME)
KEYS = (
    *("id", "count", "type", "mode", "devicevendor", "migProfiles", "placements", "migtemplate", "start", "name"),
    *("custominfo", "uuid", "score", "#", "#é"),
)
ITEM = st.recursive(
    st.sampled_from(["1@", "0", '"#"', '"#é"', "null", "true", "1.5", "{}", "[]"]),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        | st.dictionaries(st.sampled_from(KEYS).map(json.dumps), inner, max_size=4).map(
            lambda entries: "{" + ",".join(f"{key}:{value}" for key, value in entries.items()) + "}"
        )
    ),
    max_leaves=6,
)
FORMS = (
    st.tuples(SHARE | DEVICE | st.text(",:;[]{}=-#a", min_size=1, max_size=20))
    | st.tuples(ITEM.map(lambda item: item + ","), st.just("["), st.just("0]"))
    | st.tuples(ITEM.map(lambda item: item + ","), st.just('[{"custominfo":{"a":['), st.just("0]}}]"))
    | st.tuples(ITEM.map(lambda item: f'"#":{item},'), st.just('[{"custominfo":{'), st.just('"":0}}]'))
)


@pytest.mark.property
@settings(max_examples=30)
@given(FORMS)
@example(("#é,#é,1000@,1000@,éé:;",))
@example(('{"id":"#é","type":"#é","mode":"#é"},', "[", "{}]"))
@example(('"#é":"#é#é#é#é#é",', '[{"custominfo":{', '"":0}}]'))
def test_decoders_take_memory_and_work_in_proportion_to_the_text(form: tuple[str, ...]) -> None:
    """At most sixteen bytes for each byte, and twenty calls for each character."""
    text = numbered(*form)
    size = len(text.encode("utf-8", "surrogatepass"))
    for name, decode in DECODERS.items():
        assert most_memory(decode, text) <= 16 * size, name
        assert calls(decode, text) <= 20 * len(text), name


@pytest.mark.parametrize("name", [name for name in DECODERS if name not in ("policies", "uuids", "models")])
def test_text_longer_than_any_annotation_is_refused(name: str) -> None:
    """By every decoder that can raise an error."""
    with pytest.raises(DecodeError, match="more than 1048576"):
        DECODERS[name]("[" + " " * MAX_CHARACTERS)


def test_hostile_region_takes_less_than_its_size() -> None:
    """1024 slots, each device in use, the counts beyond any bound."""
    data = bytearray(b"\x01" * 2_008_953)
    data[:12] = (19920718).to_bytes(4, "little") + (1).to_bytes(4, "little") + (2).to_bytes(4, "little")
    data[2_008_944:2_008_952] = bytes(8)
    assert most_memory(decode_region, bytes(data)) <= 10 * len(data)


def test_long_honest_inventory_is_read() -> None:
    """The limit is for hostile texts. Ten thousand ordinary devices are accepted in each form."""
    text = "".join(f"GPU-{number:08x},10,40960,100,NVIDIA A100,0,true,{number},hami-core:" for number in range(10_000))
    assert 10_000 == len(decode_node_devices(text))
    shares = "".join(f"GPU-{number:08x},NVIDIA,3000,25:;" for number in range(10_000))
    assert 10_001 == len(decode_pod_devices(shares))
