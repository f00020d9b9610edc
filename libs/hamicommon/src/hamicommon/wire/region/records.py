"""
What this project's library records in words of a region that HAMi leaves unused.

The first slot keeps the numbers of the whole container, even while it is free. HAMi's library and older ones of this
project keep none, and leave no mark in the header.
Neighbours: `layout` has HAMi's places, `sums` adds up the processes. `include/hami/region.h` of the library has the
same places.
"""

import struct
from dataclasses import dataclass
from typing import Final

from hamicommon.wire.region.layout import DEVICES, LAYOUT_V1_2, Layout

MARK_START: Final = 48
"""Offset of MARK in the region."""
MARK: Final = 0x3153444345524D48
PEAK: Final = 48
"""Offset in what a slot says of a device's memory."""
WAITING: Final = 24
"""Offset in what a slot says of a device's utilization, as the next one."""
WAITED: Final = 32
RECORDS_END: Final = LAYOUT_V1_2.procs + LAYOUT_V1_2.slot_size
"""`decode_records` reads this many bytes of the region."""


@dataclass(frozen=True, slots=True)
class DeviceRecords:
    """What has happened on one device since the region was made."""

    peak_bytes: int
    """The most that the container's processes have used together."""
    waited_launches: int
    """Launches that had to wait for the container's share of the device's time."""
    waited_nanoseconds: int
    """How long they have waited, summed."""


def decode_records(layout: Layout, head: bytes | memoryview, device_count: int) -> tuple[DeviceRecords, ...] | None:
    """Return the records of the first *device_count* devices, from the region's first bytes; None if it has none."""
    if layout is not LAYOUT_V1_2 or struct.unpack_from("<Q", head, MARK_START)[0] != MARK:
        return None
    return tuple(_device_records(head, device) for device in range(min(device_count, DEVICES)))


def _device_records(head: bytes | memoryview, device: int) -> DeviceRecords:
    memory = LAYOUT_V1_2.procs + LAYOUT_V1_2.slot_used + LAYOUT_V1_2.memory_size * device
    use = LAYOUT_V1_2.procs + (LAYOUT_V1_2.slot_device_util or 0) + LAYOUT_V1_2.util_size * device
    [peak] = struct.unpack_from("<Q", head, memory + PEAK)
    return DeviceRecords(peak, *struct.unpack_from("<2Q", head, use + WAITED))
