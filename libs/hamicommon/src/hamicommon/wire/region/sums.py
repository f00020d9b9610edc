"""
The few values of a region that the monitor needs, at a bounded cost.

A container can write anything into its region, such as 1024 processes with use on all devices. So no object is made for
a process: each value is a column over all slots, and is summed in C. Nothing is judged except that no sum is below 0.
Neighbours: `layout` has the places, `codec` decodes a whole region for people.
"""

import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import compress

from hamicommon.wire.region.layout import (
    DEVICES,
    LAYOUT_V1_1,
    LAYOUT_V1_1_SEQLOCK_FIRST,
    LAYOUT_V1_2,
    SLOTS,
    UUID_BYTES,
    Layout,
    has_seqlock_first,
    refuse_second_layout,
)
from hamicommon.wire.region.records import (
    RECORDS_END,
    WAITING,
    DeviceRecords,
    Unreached,
    WaitRecord,
    decode_records,
    decode_unreached,
    decode_waits,
)


@dataclass(frozen=True, slots=True)
class RegionState:
    """What a region says about its container as a whole."""

    uuids: tuple[bytes, ...]
    """Names of its devices up to the first NUL; empty until the library writes them."""
    slot_count: int
    """Slots in use, at most 1024 whatever the file says."""
    recent_kernel: int
    utilization_switch: int
    last_kernel_time: int | None
    """Unix seconds; None if the layout has no such field."""
    records: tuple[DeviceRecords, ...] | None = None
    """One per device; None if the library that made the region keeps none."""
    waits: tuple[WaitRecord, ...] = ()
    """For the reasons for which its library has waited."""
    unreached: Unreached = field(default_factory=Unreached)
    """What its library does not reach."""


@dataclass(frozen=True, slots=True)
class DeviceSums:
    """The use of one device, summed over the living processes; never below 0."""

    context: int = 0
    module: int = 0
    data: int = 0
    total: int = 0
    """Bytes, as the others above."""
    sm: int = 0
    """Percent of the device's time."""
    waiting: int = 0
    """Launches that wait; 0 if the region has no records."""


@dataclass(frozen=True, slots=True)
class ProcessSums:
    """The living processes of a region."""

    pids: frozenset[int] = frozenset()
    """The pids that the library has written: in the container's namespace, and on the host if it knows them."""
    processes: int = 0
    devices: Mapping[int, DeviceSums] = field(default_factory=dict, hash=False)
    """By device index."""


def head_size(layout: Layout) -> int:
    """Return how much of the region's beginning `decode_state` reads."""
    return RECORDS_END if layout is LAYOUT_V1_2 else layout.procs


def tail_start(layout: Layout) -> int:
    """Return the first byte of the part behind the slots that `decode_state` reads."""
    # A library of another layout writes its time there, inside the last slot.
    return layout.proc_num - 64


def decode_state(layout: Layout, head: memoryview, tail: memoryview) -> RegionState:
    """
    Return the state in *head*, the first `head_size` bytes, and *tail*, those from `tail_start` to the region's end.

    Raises: DecodeError when libraries of two layouts wrote to the file.
    """
    start = tail_start(layout)
    refuse_second_layout(layout, tail, start)
    slots, switch, recent = struct.unpack_from("<3i", tail, layout.proc_num - start)
    [count] = struct.unpack_from("<Q", head, layout.device_count)
    last = layout.last_kernel_time
    return RegionState(
        uuids=tuple(
            bytes(head[at : at + UUID_BYTES]).partition(b"\0")[0]
            for at in range(layout.uuids, layout.uuids + UUID_BYTES * min(count, DEVICES), UUID_BYTES)
        ),
        slot_count=max(0, min(slots, SLOTS)),
        recent_kernel=recent,
        utilization_switch=switch,
        last_kernel_time=None if last is None else struct.unpack_from("<Q", tail, last - start)[0],
        records=decode_records(layout, head, count),
        waits=decode_waits(layout, head),
        unreached=decode_unreached(layout, head),
    )


def sum_processes(layout: Layout, slots: memoryview, devices: Collection[int]) -> ProcessSums:
    """Return the sums over *slots*, the bytes of whole slots, for the device indexes *devices*."""
    if not slots:
        return ProcessSums(devices=dict.fromkeys(devices, DeviceSums()))
    if layout is LAYOUT_V1_1 and has_seqlock_first(slots):
        layout = LAYOUT_V1_1_SEQLOCK_FIRST
    words, amounts = slots.cast("i"), slots.cast("q")
    words_a_slot, amounts_a_slot = layout.slot_size // 4, layout.slot_size // 8
    living = words[layout.slot_status // 4 :: words_a_slot].tolist()

    def column_sum(offset: int) -> int:
        return max(0, sum(compress(amounts[offset // 8 :: amounts_a_slot].tolist(), living)))

    def device_sums(device: int) -> DeviceSums:
        memory = layout.slot_used + layout.memory_size * device
        columns = [memory + place for place in (0, 8, 16, 32)]
        if layout.slot_device_util is not None:
            use = layout.slot_device_util + layout.util_size * device
            columns += [use + 16, use + WAITING] if layout is LAYOUT_V1_2 else [use + 16]
        return DeviceSums(*map(column_sum, columns))

    pids = (compress(words[offset // 4 :: words_a_slot].tolist(), living) for offset in (0, layout.slot_host_pid))
    return ProcessSums(
        pids=frozenset(pid for column in pids for pid in column if pid > 0),
        processes=sum(map(bool, living)),
        devices={device: device_sums(device) for device in devices},
    )
