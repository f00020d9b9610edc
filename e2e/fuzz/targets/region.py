"""
Region files and traces of launches, which a container can write: values, or DecodeError.

All readers of a region agree, and what is written for a value is read as that value. An input is a recipe, because a
region has two megabytes: the file to start with, its size, and patches, which are a place, a length and bytes.
"""

import gzip
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Final

from fuzz.targets.forms import VECTORS, cases
from hamicommon.wire.errors import DecodeError, EncodeError
from hamicommon.wire.region.codec import Region, decode_region, encode_region
from hamicommon.wire.region.layout import DEVICES, detect_layout
from hamicommon.wire.region.sums import decode_state, head_size, sum_processes, tail_start
from hamicommon.wire.region.trace import ENTRIES, TRACE_BYTES, TRACE_MAGIC, decode_trace

INPUTS: Final = 600
IS_JSON: Final = False
_STARTS: Final = (
    "v0-one",
    "v1.1-busy",
    "v1.1-shifted-one",
    "v1.1-seqlock-first-one",
    "v1.2-busy",
    "v1.2-monitor-wrote",
)
_TRACE: Final = len(_STARTS)
_PATCHES_MAX: Final = 64


def check(data: bytes) -> None:
    """Make the file of a recipe, and read it."""
    if len(data) < 4:
        return
    start = data[0] % (_TRACE + 1)
    file = bytearray(_file(start))
    _patch(file, data[4:])
    cut = int.from_bytes(data[1:4], "little")
    view = memoryview(file)[: cut if data[0] & 0x80 else None]
    with suppress(DecodeError):
        if start == _TRACE:
            assert len(decode_trace(bytes(view))) <= ENTRIES
        else:
            _read(view)


def seeds() -> Iterator[bytes]:
    """Return recipes that leave a file as it is, or patch its header, a slot, and the words behind the slots."""
    yield from (bytes([start, 0, 0, 0]) for start in range(_TRACE + 1))
    places = ((0, b"\0\0\0\0"), (4, b"\x01\0\0\0\x09"), (48, b"HMREDCS1"), (56, b"\xff" * 8), (1856, b"\x01\0\0\0" * 4))
    for start in range(_TRACE + 1):
        yield bytes([start, 0, 0, 0]) + b"".join(patch(place, text) for place, text in places)
        yield bytes([start | 0x80]) + (1197880).to_bytes(3, "little")
    yield bytes([4, 0, 0, 0]) + patch(2008896, b"\xff\xff\xff\x7f") + patch(2008880, b"\x01" * 16)
    for case in cases(VECTORS / "region/malformed.json"):
        patches = [(patch["offset"], bytes.fromhex(patch["hex"])) for patch in case["patches"] if "hex" in patch]
        yield bytes([4, 0, 0, 0]) + b"".join(patch(place, text[:255]) for place, text in patches)


def patch(place: int, text: bytes) -> bytes:
    """Return the patch of a recipe that writes *text* at *place*."""
    return place.to_bytes(3, "little") + bytes([len(text)]) + text


def _patch(file: bytearray, patches: bytes) -> None:
    for _ in range(_PATCHES_MAX):
        if len(patches) < 5:
            return
        place, length = int.from_bytes(patches[:3], "little") % len(file), patches[3]
        text = patches[4 : 4 + length][: len(file) - place]
        file[place : place + len(text)] = text
        patches = patches[4 + length :]


def _read(view: memoryview) -> None:
    region = decode_region(view)
    layout = detect_layout(len(view), view)
    assert region.device_count <= DEVICES
    state = decode_state(layout, view[: head_size(layout)], view[tail_start(layout) : layout.region_size])
    assert state.slot_count == len(region.slots)
    end = layout.procs + layout.slot_size * state.slot_count
    sums = sum_processes(layout, view[layout.procs : end], range(region.device_count))
    assert sums.processes == sum(bool(slot.status) for slot in region.slots)
    assert all(amount.total >= 0 for amount in sums.devices.values())
    _round_trip(region)


def _round_trip(region: Region) -> None:
    """Write the region and read it, unless a name in it is no text, which is read escaped."""
    if all(uuid.isascii() and "\\" not in uuid for uuid in region.uuids):
        with suppress(EncodeError):
            again = decode_region(encode_region(region))
            assert again.slots == region.slots
            assert (again.uuids, again.priority) == (region.uuids, region.priority)


@cache
def _file(start: int) -> bytes:
    if start == _TRACE:
        return TRACE_MAGIC.to_bytes(8, "little") + bytes(TRACE_BYTES - 8)
    return gzip.decompress((VECTORS / f"region/{_STARTS[start]}.cache.gz").read_bytes())
