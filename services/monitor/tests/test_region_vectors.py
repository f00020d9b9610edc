"""
Region files that HAMi's libraries wrote, intact and damaged.
"""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hami_monitor.adapters.region_file import RegionFile, RegionRefusedError
from hami_monitor.decide.containers import Refusal
from hami_monitor.decide.feedback import FeedbackWrite
from hamicommon.wire.region.sums import ProcessSums, RegionState

VECTORS = Path(__file__).parents[3] / "libs/hamicommon/vectors/region"
CASES = {case["case"]: case for case in json.loads((VECTORS / "cases.json").read_text())}
MALFORMED = json.loads((VECTORS / "malformed.json").read_text())
PARTS = ("total", "context", "module", "data")


def content_of(name: str) -> bytearray:
    """Return the region file of the case *name*."""
    return bytearray(gzip.decompress((VECTORS / CASES[name]["file"]).read_bytes()))


def names(keep: Callable[[dict[str, Any]], bool]) -> list[str]:
    """Return the names of the cases for which *keep* returns True."""
    return [name for name, case in CASES.items() if keep(case)]


Read = Callable[[bytes | bytearray], tuple[RegionState, ProcessSums]]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return a function that reads a region of the given contents."""

    def reading(content: bytes | bytearray) -> tuple[RegionState, ProcessSums]:
        path = tmp_path / "r.cache"
        path.write_bytes(content)
        file = RegionFile.open(path)
        try:
            state = file.state()
            return state, file.sums(state.slot_count, range(len(state.uuids)))
        finally:
            file.close()

    return reading


@pytest.mark.parametrize("name", names(lambda case: case["layout"] != "mixed"))
def test_state_is_what_the_library_wrote(name: str, read: Read) -> None:
    """Both writable fields, the device names and the time of the last launch, in every layout."""
    expected = CASES[name]["expected"]

    state, _ = read(content_of(name))

    assert state.records is None, "HAMi's libraries record nothing"
    assert expected["uuids"] == [uuid.decode() for uuid in state.uuids]
    assert [expected[field] for field in ("recent_kernel", "utilization_switch", "slot_count", "last_kernel_time")] == [
        state.recent_kernel,
        state.utilization_switch,
        state.slot_count,
        state.last_kernel_time,
    ]


@pytest.mark.parametrize("name", names(lambda case: case["layout"] != "mixed"))
def test_sums_are_those_of_the_living_slots(name: str, read: Read) -> None:
    """Each amount is summed over the slots whose status is not 0."""
    living = [slot for slot in CASES[name]["expected"]["slots"] if slot["status"] != 0]

    _, sums = read(content_of(name))

    assert len(living) == sums.processes
    for index, device in sums.devices.items():
        key = str(index)
        assert sum((slot["device_util"] or {}).get(key, {}).get("sm", 0) for slot in living) == device.sm
        for part in PARTS:
            exact = sum(slot["used"].get(key, {}).get(part, 0) for slot in living)
            assert exact % 2**64 == getattr(device, part)


@pytest.mark.parametrize("name", names(lambda case: bool(case.get("hami_2_10_reader_correct"))))
def test_values_are_those_of_hamis_monitor(name: str, read: Read) -> None:
    """If HAMi 2.10 reads a file correctly, the exported numbers are the same."""
    state, sums = read(content_of(name))

    assert [
        {key: value for key, value in device.items() if key not in {"offset", "memory_limit"}}
        for device in CASES[name]["hami_2_10_reads"]["devices"]
    ] == [
        {"uuid": uuid.decode(), "sm": sums.devices[index].sm}
        | {part: getattr(sums.devices[index], part) for part in PARTS}
        for index, uuid in enumerate(state.uuids)
    ]


@pytest.mark.parametrize("name", names(lambda case: case["layout"] == "mixed"))
def test_file_of_two_layouts_is_refused(name: str, read: Read) -> None:
    """There is no correct reading."""
    with pytest.raises(RegionRefusedError) as caught:
        read(content_of(name))

    assert Refusal.UNKNOWN_LAYOUT is caught.value.refusal


@pytest.mark.parametrize("case", MALFORMED, ids=lambda case: case["case"])
def test_damaged_file_is_read_or_refused(case: dict[str, Any], tmp_path: Path) -> None:
    """Nothing crashes, no amount is negative or wrapped, and a store changes two fields and not the size."""
    content = content_of(case["base"])
    if case["truncate"] is not None:
        content = content[: case["truncate"]].ljust(case["truncate"], b"\0")
    for patch in case["patches"]:
        value = bytes.fromhex(patch["hex"])
        content = content.ljust(patch["offset"] + len(value), b"\0")
        content[patch["offset"] : patch["offset"] + len(value)] = value
    assert case["size"] == len(content)
    path = tmp_path / case.get("file_name", "r.cache")
    path.write_bytes(content)

    try:
        file = RegionFile.open(path)
    except RegionRefusedError:
        return
    state = file.state()
    for device in file.sums(state.slot_count, range(16)).devices.values():
        assert all(0 <= getattr(device, part) < 2**63 for part in PARTS)
    file.store(FeedbackWrite(recent_kernel=0, utilization_switch=1))
    after = path.read_bytes()
    file.close()

    changed = int.from_bytes(content, "little") ^ int.from_bytes(after, "little")
    first_bit = (changed & -changed).bit_length()
    assert len(content) == len(after)
    assert changed.bit_length() - first_bit < 2 * 32, "the two fields are neighbours in every layout"


def test_shrunk_region_of_the_newest_layout_is_not_taken_for_an_old_one(read: Read) -> None:
    """HAMi's monitor reads it as v0, with every amount wrong."""
    with pytest.raises(RegionRefusedError):
        read(content_of("v1.2-idle")[:1600000])
