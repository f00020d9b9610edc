"""
The annotations of Pods and Nodes: every codec of `hamicommon.wire`.

What is decoded, encoded and decoded again is the same. A decoder raises DecodeError and nothing else, and what can be
written for an older version of HAMi can be read.
The first byte of an input chooses the codec.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

from fuzz.targets.forms import VECTORS, some, text_of
from hamicommon.wire.device_lists import on_both, on_either, type_allowed, uuid_allowed
from hamicommon.wire.errors import DecodeError, EncodeError
from hamicommon.wire.handshake import decode_handshake, encode_handshake
from hamicommon.wire.mig import decode_mig_allocations, decode_mig_suffix, encode_mig_allocations
from hamicommon.wire.node_devices import decode_node_devices, encode_node_devices
from hamicommon.wire.node_lock import decode_node_lock, encode_node_lock
from hamicommon.wire.pair_scores import decode_pair_scores, encode_pair_scores
from hamicommon.wire.pod_devices import decode_pod_devices, encode_pod_devices
from hamicommon.wire.policies import decode_device_policies, decode_scoring_weights
from hamicommon.wire.quantity import QuantityError, parse_quantity, rounded, rounded_down, whole
from hamicommon.wire.version import JSON_SINCE, NEWEST, NINE_FIELDS_SINCE, OLDEST, WireVersion

INPUTS: Final = 30_000
IS_JSON: Final = False
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def check(data: bytes) -> None:
    """Read the text of an annotation, write it and read it again."""
    if data:
        _NAMED[data[0] % len(_NAMED)][1](text_of(data[1:]))


def seeds() -> Iterator[bytes]:
    """Return texts that HAMi wrote, and odd ones."""
    for number, (folder, _) in enumerate(_NAMED):
        for path in sorted((VECTORS / folder).glob("*.json")):
            for case in some(path):
                texts = [case.get("text"), *(found["text"] for found in case.get("texts", ()))]
                yield from (bytes([number]) + text.encode() for text in texts if text is not None)
    yield from (bytes([_number("quantities")]) + text for text in (b"1500m", b"16Gi", b"1e3", b"-.5", b"+1.50E-3"))
    yield bytes([_number("device-lists")]) + b"GPU-a, GPU-b|GPU-b,|GPU-b"
    yield bytes([_number("versions")]) + b"v2.8.3"


def _round_trip(decode: Callable[[str], Any], encode: Callable[[Any], str]) -> Callable[[str], None]:
    def there_and_back(text: str) -> None:
        with suppress(DecodeError):
            value = decode(text)
            if _SURROGATE.search(text) is None:  # No peer can write half of a pair.
                written = encode(value)
                assert value == _again(decode, written), written

    return there_and_back


def _read(decode: Callable[[str], Any]) -> Callable[[str], None]:
    """Return what checks a form that only others write."""

    def there(text: str) -> None:
        with suppress(DecodeError):
            decode(text)

    return there


def _again(decode: Callable[[str], Any], written: str) -> Any:
    """Return what *decode* makes of what was *written*, which is no error any more."""
    try:
        return decode(written)
    except DecodeError as error:
        raise AssertionError(f"{written[:200]!r} was written and cannot be read") from error


def _node_devices(text: str) -> None:
    _round_trip(decode_node_devices, encode_node_devices)(text)
    with suppress(DecodeError):
        devices = decode_node_devices(text)
        for version in (OLDEST, NINE_FIELDS_SINCE, JSON_SINCE) if devices else ():
            with suppress(EncodeError):
                count = len(_again(decode_node_devices, encode_node_devices(devices, version)))
                assert count == len(devices), version


def _handshake(text: str) -> None:
    _round_trip(decode_handshake, encode_handshake)(text)
    with suppress(DecodeError):
        handshake = decode_handshake(text)
        for version in (OLDEST, NEWEST):
            with suppress(EncodeError):
                assert handshake.state is _again(decode_handshake, encode_handshake(handshake, version)).state


def _quantity(text: str) -> None:
    for read in (parse_quantity, rounded, rounded_down):
        with suppress(QuantityError):
            read(text)
    amount = whole(text)
    if amount is not None:
        assert amount == parse_quantity(text), text


def _device_lists(text: str) -> None:
    one, other, name = (*text.split("|", 2), "", "")[:3]
    name = name or "GPU-a"  # No device is without a UUID.
    for use in (one, None):
        type_allowed(use, other, name)
        both, either = on_both(use, other), on_either(use, other)
        is_allowed = [uuid_allowed(each, None, name) for each in (use, other, both)]
        assert all(is_allowed[:2]) == is_allowed[2], "on both lists"
        assert uuid_allowed(None, either, name) == (uuid_allowed(None, use, name) and uuid_allowed(None, other, name))


def _version(text: str) -> None:
    with suppress(DecodeError):
        version = WireVersion.parse(text)
        assert version == WireVersion.parse(str(version))


_NAMED: Final[tuple[tuple[str, Callable[[str], None]], ...]] = (
    ("node-devices", _node_devices),
    # What is written ends in `;`, behind which there is an empty list.
    ("pod-devices", _round_trip(decode_pod_devices, lambda lists: encode_pod_devices(lists).removesuffix(";"))),
    ("mig-allocations", _round_trip(decode_mig_allocations, encode_mig_allocations)),
    ("node-lock", _round_trip(decode_node_lock, encode_node_lock)),
    ("handshake", _handshake),
    ("scoring-weights", _read(decode_scoring_weights)),
    ("pair-scores", _round_trip(decode_pair_scores, encode_pair_scores)),
    ("policies", _read(decode_device_policies)),
    ("mig-suffix", _read(decode_mig_suffix)),
    ("device-lists", _device_lists),
    ("quantities", _quantity),
    ("versions", _version),
)
"""The folder of its vectors, and what an input is for. A number is part of every input, so new ones come last."""


def _number(name: str) -> int:
    return [folder for folder, _ in _NAMED].index(name)
