"""
Region files of old builds of the library, and broken copies of them: `vectors/region`.
"""

import gzip
import json
import mmap
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hamicommon.wire.errors import DecodeError
from hamicommon.wire.region.codec import Region, Slot, decode_region, encode_region
from hamicommon.wire.region.layout import HEADER_BYTES, LAYOUTS, MAGIC, Layout, detect_layout

VECTORS = Path(__file__).parents[1] / "vectors" / "region"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "cases.json").read_text("utf-8"))
LAYOUT_ROWS: list[dict[str, Any]] = json.loads((VECTORS / "layouts.json").read_text("utf-8"))
MALFORMED: list[dict[str, Any]] = json.loads((VECTORS / "malformed.json").read_text("utf-8"))


def named(cases: list[dict[str, Any]]) -> list[Any]:
    """Return *cases* as parameters, each under its name."""
    return [pytest.param(case, id=case["case"]) for case in cases]


GOOD = [case for case in CASES if case["layout"] != "mixed"]
MIXED = [case for case in CASES if case["layout"] == "mixed"]
SPARE = {"seqlock": 0, "postinit_lock_value": 0}
"""What a library of 1.2 finds in the spare room of a 1.1 file; there the fields do not exist."""


@cache
def file_of(case_name: str) -> bytes:
    """Return the bytes of the file of a case."""
    name = next(case["file"] for case in CASES if case["case"] == case_name)
    return gzip.decompress((VECTORS / name).read_bytes())


def broken(recipe: dict[str, Any]) -> bytes:
    """Return the bytes that a recipe of malformed.json makes."""
    data = bytearray(file_of(recipe["base"]))
    if recipe["truncate"] is not None:
        data = data[: recipe["truncate"]].ljust(recipe["truncate"], b"\0")
    for patch in recipe["patches"]:
        patched = bytes.fromhex(patch["hex"])
        end = patch["offset"] + len(patched)
        data = data.ljust(end, b"\0")
        data[patch["offset"] : end] = patched
    return bytes(data)


def said(region: Region) -> dict[str, Any]:
    """Return *region* in the words of the vectors."""
    return {
        "initialized": True,
        "major": region.major,
        "minor": region.minor,
        "sm_init_flag": region.sm_init_flag,
        "owner_pid": region.owner_pid,
        "lock_value": region.lock_value,
        "postinit_lock_value": region.postinit_lock_value,
        "device_count": region.device_count,
        "uuids": list(region.uuids),
        "memory_limits": list(region.memory_limits_bytes),
        "sm_limits": list(region.sm_limits_percent),
        "priority": region.priority,
        "utilization_switch": region.utilization_switch,
        "recent_kernel": region.recent_kernel,
        "last_kernel_time": region.last_kernel_time,
        "slot_count": len(region.slots),
        "slots": [said_of_slot(slot) for slot in region.slots],
    }


def said_of_slot(slot: Slot) -> dict[str, Any]:
    """Return one process in the words of the vectors."""
    busy = slot.utilization
    return {
        "index": slot.index,
        "pid": slot.pid,
        "hostpid": slot.host_pid,
        "status": slot.status,
        "seqlock": slot.seqlock,
        "used": {
            str(device): {name: getattr(used, name) for name in ("total", "context", "module", "data", "offset")}
            for device, used in slot.memory.items()
        },
        "monitor_used": {str(device): used for device, used in slot.monitor_used_bytes.items()},
        "device_util": None
        if busy is None
        else {str(device): {"dec": one.dec, "enc": one.enc, "sm": one.sm} for device, one in busy.items()},
    }


def without_spare(expected: dict[str, Any]) -> dict[str, Any]:
    """Return what a 1.1 file says without the fields that only 1.2 has."""
    slots = [{**slot, "seqlock": None} for slot in expected["slots"]]
    return {**expected, "postinit_lock_value": None, "slots": slots}


def joined_by_newer(case: dict[str, Any]) -> bool:
    """Return whether a library of 1.2 joined a file of 1.1, whose spare room it reads as its own fields."""
    newer = {each["commit"] for layout in LAYOUT_ROWS if layout["layout"] == "v1.2" for each in layout["commits"]}
    return case["layout"] == "v1.1" and case.get("then_written_by", {}).get("commit") in newer


@pytest.mark.parametrize("case", named(GOOD))
def test_region_says_what_its_bytes_say(case: dict[str, Any]) -> None:
    """Every field of every layout, as the writing library's own header reads it."""
    region = decode_region(file_of(case["case"]))
    expected = {key: value for key, value in case["expected"].items() if key != "beyond_slot_count"}
    if joined_by_newer(case):
        assert SPARE["postinit_lock_value"] == expected["postinit_lock_value"]
        assert all(SPARE["seqlock"] == slot["seqlock"] for slot in expected["slots"])
        expected = without_spare(expected)
    assert case["layout"] == region.layout
    assert expected == said(region)


@pytest.mark.parametrize("case", named(MIXED))
def test_region_of_two_layouts_is_refused(case: dict[str, Any]) -> None:
    """No reading of it would be right."""
    with pytest.raises(DecodeError):
        decode_region(file_of(case["case"]))


@pytest.mark.parametrize("case", named(GOOD))
def test_written_region_reads_the_same(case: dict[str, Any]) -> None:
    """What is read can be written, in its layout."""
    region = decode_region(file_of(case["case"]))
    assert region == decode_region(encode_region(region))
    assert case["size"] == len(encode_region(region))


SIZES = {row["layout"]: row["region_size"] for row in LAYOUT_ROWS}
NEWEST_MINOR = 255
"""Minor versions from here on are taken for damage."""
TRAILING_BYTE = 1
"""Files have one byte more than the region."""


def refusal(recipe: dict[str, Any], data: bytes) -> str | None:
    """
    Return the place that the refusal of *data*, made by *recipe*, names; None if it is read.

    HAMi trusts a cut file as one of version 0 and takes any minor version. A file without version may have grown.
    """
    layout = next(case["layout"] for case in CASES if case["case"] == recipe["base"])
    if len(data) < min(SIZES.values()):
        return "size"
    magic, major, minor = struct.unpack_from("<iii", data)
    if magic != MAGIC:
        return "byte 0"
    if len(data) < SIZES["v1.1"]:
        is_whole = len(data) >= SIZES["v0"] or len(data) <= SIZES["v0-early"] + TRAILING_BYTE
        return None if layout.startswith("v0") and is_whole else "size"
    if major != 1 or not 1 <= minor <= NEWEST_MINOR:
        return "byte 4"
    if layout != "v1.1-shifted":
        return None
    if minor > 1:
        shifted = next(row for row in LAYOUT_ROWS if row["layout"] == layout)
        return f"byte {shifted['region']['last_kernel_time']}"
    return "size" if len(data) < SIZES[layout] else None


@pytest.mark.parametrize("recipe", named(MALFORMED))
def test_broken_region_is_refused_or_read_within_bounds(recipe: dict[str, Any]) -> None:
    """Nothing else than a refusal escapes, and counts stay within the file."""
    data = broken(recipe)
    assert recipe["size"] == len(data)
    place = refusal(recipe, data)
    if place is not None:
        with pytest.raises(DecodeError) as refused:
            decode_region(data)
        assert place == refused.value.place
        return
    region = decode_region(data)
    assert region.device_count <= 16
    assert len(region.slots) <= 1024


def test_file_grown_to_the_shifted_size_is_still_what_its_bytes_say() -> None:
    """The size alone does not make it shifted: the second semaphore is missing."""
    recipe = next(recipe for recipe in MALFORMED if recipe["case"] == "v1-grown-to-shifted-size")
    assert "v1.1" == decode_region(broken(recipe)).layout


def test_mapped_file_reads_as_its_bytes_do(tmp_path: Path) -> None:
    """The monitor maps the files; the map can be closed afterwards, so nothing of it is kept."""
    data = file_of("v1.2-busy")
    path = tmp_path / "region.cache"
    path.write_bytes(data)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert decode_region(data) == decode_region(mapped)


def test_layout_is_told_from_the_head_alone() -> None:
    """A caller can check the layout before it maps the file."""
    for case in ("v0-one", "v0-early-one", "v1.1-idle", "v1.1-shifted-one", "v1.2-idle"):
        data = file_of(case)
        assert decode_region(data).layout == detect_layout(len(data), data[:HEADER_BYTES]).name


NAMES = {
    "procs": "procs",
    "used": "slot_used",
    "monitorused": "slot_monitor_used",
    "device_util": "slot_device_util",
    "status": "slot_status",
    "seqlock": "slot_seqlock",
    "pid": "slot_pid",
    "hostpid": "slot_host_pid",
}


REGION_FIELDS = json.loads((VECTORS / "layouts.json").read_text("utf-8"))[-2]["region"]
"""Of the shifted layout, which has them all."""


def in_vector_words(layout: Layout) -> dict[str, Any]:
    """Return a layout as layouts.json says it."""
    region_names = [name for name in REGION_FIELDS if name != "initialized_flag"]
    region = {"initialized_flag": 0, **{name: getattr(layout, name) for name in region_names}}
    slot_names = ("pid", "hostpid", "used", "monitorused", "device_util", "status", "seqlock")
    slot = {name: getattr(layout, NAMES[name]) for name in slot_names}
    return {
        "layout": layout.name,
        "region_size": layout.region_size,
        "slot_size": layout.slot_size,
        "memory_size": layout.memory_size,
        "sem_size": 32,
        "util_size": layout.util_size,
        "region": {name: offset for name, offset in region.items() if offset is not None},
        "slot": {name: offset for name, offset in slot.items() if offset is not None},
    }


@pytest.mark.parametrize(
    "layout",
    [pytest.param(layout, id=layout["layout"]) for layout in json.loads((VECTORS / "layouts.json").read_text())],
)
def test_offsets_are_those_that_the_c_library_is_tested_with(layout: dict[str, Any]) -> None:
    """One vector file holds the offsets for both."""
    ours = next(each for each in LAYOUTS if each.name == layout["layout"])
    assert {key: value for key, value in layout.items() if key != "commits"} == in_vector_words(ours)
