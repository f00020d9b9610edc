"""
The sums that the monitor reads of a region, compared with the whole region, and the records that our library keeps.
"""

import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest

from hamicommon.wire.region.codec import Slot, decode_region
from hamicommon.wire.region.layout import LAYOUT_V1_1, LAYOUT_V1_2, SLOTS, Layout, detect_layout, has_seqlock_first
from hamicommon.wire.region.records import (
    MARK,
    MARK_START,
    PEAK,
    UNREACHED,
    WAITED,
    WAITING,
    WAITS,
    DeviceRecords,
    Unreached,
    WaitRecord,
    decode_records,
    decode_unreached,
    decode_waits,
)
from hamicommon.wire.region.sums import (
    DeviceSums,
    ProcessSums,
    decode_state,
    head_size,
    sum_processes,
    tail_start,
)

VECTORS = Path(__file__).parents[1] / "vectors" / "region"
CASES: list[dict[str, Any]] = json.loads((VECTORS / "cases.json").read_text("utf-8"))
FILES = sorted({case["file"] for case in CASES if case["layout"] != "mixed"})
DEVICES = (0, 1, 15)
MEMORY = LAYOUT_V1_2.procs + LAYOUT_V1_2.slot_used
assert LAYOUT_V1_2.slot_device_util is not None
USE = LAYOUT_V1_2.slot_device_util


def a_file(name: str) -> tuple[Layout, memoryview]:
    """Return the layout and the bytes of a region of an old build."""
    data = gzip.decompress((VECTORS / name).read_bytes())
    return detect_layout(len(data), memoryview(data)), memoryview(data)


def a_head(words: dict[int, int]) -> bytes:
    """Return the first bytes of a region of our library, with *words* of eight bytes by their offset."""
    head = bytearray(head_size(LAYOUT_V1_2))
    for offset, word in {MARK_START: MARK, **words}.items():
        struct.pack_into("<Q", head, offset, word)
    return bytes(head)


def summed(slots: list[Slot], device: int) -> DeviceSums:
    """Return the use of *device* by *slots*, with no sum below 0."""
    memory = [slot.memory[device] for slot in slots if device in slot.memory]
    used = [slot.utilization[device] for slot in slots if slot.utilization and device in slot.utilization]
    amounts = [[signed(getattr(one, name)) for one in memory] for name in ("context", "module", "data", "total")]
    context, module, data, total = (max(0, sum(amount)) for amount in amounts)
    return DeviceSums(context, module, data, total, max(0, sum(one.sm for one in used)))


def signed(amount: int) -> int:
    """Return a word as a signed number: a process that frees more than it was charged for has a use below 0."""
    return amount - (1 << 64) if amount >= 1 << 63 else amount


@pytest.mark.parametrize("name", FILES)
def test_state_equals_that_of_the_whole_region(name: str) -> None:
    """It is read from the first and the last bytes alone."""
    layout, data = a_file(name)
    region = decode_region(data)

    state = decode_state(layout, data[: head_size(layout)], data[tail_start(layout) :])

    assert tuple(uuid.encode() for uuid in region.uuids) == state.uuids
    assert (region.recent_kernel, region.utilization_switch) == (state.recent_kernel, state.utilization_switch)
    assert region.last_kernel_time == state.last_kernel_time
    assert (None, (), Unreached()) == (state.records, state.waits, state.unreached)


@pytest.mark.parametrize("name", FILES)
def test_sums_equal_those_over_the_slots_of_the_whole_region(name: str) -> None:
    """Only processes that live count."""
    layout, data = a_file(name)
    living = [slot for slot in decode_region(data).slots if slot.status]
    count = decode_state(layout, data[: head_size(layout)], data[tail_start(layout) :]).slot_count

    sums = sum_processes(layout, data[layout.procs : layout.procs + count * layout.slot_size], DEVICES)

    pids = {pid for slot in living for pid in (slot.pid, slot.host_pid) if pid > 0}
    assert ProcessSums(frozenset(pids), len(living), {device: summed(living, device) for device in DEVICES}) == sums


def test_region_without_processes_uses_nothing() -> None:
    """Each device that is asked for has its sums."""
    assert ProcessSums(devices={0: DeviceSums(), 3: DeviceSums()}) == sum_processes(
        LAYOUT_V1_2, memoryview(b""), (0, 3)
    )


def test_sum_below_zero_is_zero() -> None:
    """A container can write any use."""
    slot = bytearray(LAYOUT_V1_2.slot_size)
    struct.pack_into("<2i", slot, 0, 7, -1)
    struct.pack_into("<i", slot, LAYOUT_V1_2.slot_status, 1)
    struct.pack_into("<q", slot, LAYOUT_V1_2.slot_used + 32, -4096)

    assert ProcessSums(frozenset({7}), 1, {0: DeviceSums()}) == sum_processes(LAYOUT_V1_2, memoryview(slot), (0,))


def test_launches_that_wait_count_only_where_the_library_records_them() -> None:
    """The same bytes mean nothing in another layout."""
    slot = bytearray(LAYOUT_V1_2.slot_size)
    struct.pack_into("<i", slot, LAYOUT_V1_2.slot_status, 1)
    struct.pack_into("<q", slot, USE + WAITING, 3)

    assert 3 == sum_processes(LAYOUT_V1_2, memoryview(slot), (0,)).devices[0].waiting


@pytest.mark.parametrize(("said", "kept"), [(-1, 0), (0, 0), (SLOTS, SLOTS), (SLOTS + 1, SLOTS)])
def test_number_of_slots_is_bounded(said: int, kept: int) -> None:
    """Whatever the file says, no more is read than there is."""
    tail = bytearray(LAYOUT_V1_2.region_size - tail_start(LAYOUT_V1_2))
    struct.pack_into("<i", tail, 64, said)

    assert kept == decode_state(LAYOUT_V1_2, memoryview(a_head({})), memoryview(tail)).slot_count


def test_records_of_each_device_are_read() -> None:
    """Peak, launches that waited, and for how long."""
    second_memory, second_use = MEMORY + LAYOUT_V1_2.memory_size, LAYOUT_V1_2.procs + USE + LAYOUT_V1_2.util_size
    head = a_head({second_memory + PEAK: 4096, second_use + WAITED: 5, second_use + WAITED + 8: 600})

    assert (DeviceRecords(0, 0, 0), DeviceRecords(4096, 5, 600)) == decode_records(LAYOUT_V1_2, head, 2)
    assert 16 == len(decode_records(LAYOUT_V1_2, head, 1 << 40) or ())


def test_waits_are_read_by_reason() -> None:
    """A reason without waits is left out."""
    third = MEMORY + 4 * LAYOUT_V1_2.memory_size + WAITS
    head = a_head({third: 900, third + LAYOUT_V1_2.memory_size: 2 << 32 | 700})

    assert (WaitRecord("cost", 2, 900, 700),) == decode_waits(LAYOUT_V1_2, head)


def test_what_no_hook_reaches_is_read() -> None:
    """Both counts are in one word."""
    assert Unreached(3, 4) == decode_unreached(LAYOUT_V1_2, a_head({UNREACHED: 3 << 32 | 4}))


@pytest.mark.parametrize(
    ("layout", "mark"), [(LAYOUT_V1_1, MARK), (LAYOUT_V1_2, MARK + 1)], ids=["other-layout", "no-mark"]
)
def test_region_of_another_library_has_no_records(layout: Layout, mark: int) -> None:
    """The same words are something else there, or chance."""
    head = a_head(
        {MARK_START: mark, UNREACHED: 1, MEMORY + WAITS: 1, MEMORY + LAYOUT_V1_2.memory_size + WAITS: 1 << 32}
    )

    assert (None, (), Unreached()) == (
        decode_records(layout, head, 1),
        decode_waits(layout, head),
        decode_unreached(layout, head),
    )


@pytest.mark.parametrize("slots", [b"", bytes(2 * LAYOUT_V1_1.slot_size)], ids=["none", "free"])
def test_region_without_processes_is_of_the_ordinary_version(slots: bytes) -> None:
    """There is no status by which it could be another."""
    assert not has_seqlock_first(memoryview(slots))
