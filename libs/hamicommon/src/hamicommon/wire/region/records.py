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
UNREACHED: Final = 40
"""Offset of the word that counts what no hook reaches."""
PEAK: Final = 48
"""Offset in what a slot says of a device's memory."""
WAITS: Final = 56
"""As the one before. The words of devices 2r and 2r + 1 are about the r-th of `WAIT_REASONS`."""
WAITING: Final = 24
"""Offset in what a slot says of a device's utilization, as the next one."""
WAITED: Final = 32
WAIT_REASONS: Final = ("share", "queue", "cost", "priority", "region", "context", "pool", "driver")
"""
What the library waits for, in the region's order.

Launches wait for the container's share of the device's time, for what is queued on the device, for the first launch of
their kind to be measured, and for a container of higher priority. Calls wait for the region's lock, for a context that
another is making, for threads that use the same memory pool, and for a thread that is in the driver.
"""
WAIT_REASON_COUNT: Final = len(WAIT_REASONS)
_WAIT_WORDS: Final = struct.Struct("<" + f"Q{LAYOUT_V1_2.memory_size - 8}x" * (2 * WAIT_REASON_COUNT - 1) + "Q")
"""All words of waits at once: a scrape reads those of each container."""
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


@dataclass(frozen=True, slots=True)
class WaitRecord:
    """How often and how long the library in a container has waited for one reason since the region was made."""

    reason: str
    """One of `WAIT_REASONS`."""
    waits: int
    """Counted modulo 2^32."""
    nanoseconds: int
    """All waits together."""
    longest_microseconds: int
    """At most 2^32 - 1, which is more than an hour."""


@dataclass(frozen=True, slots=True)
class Unreached:
    """How often programs of a container used the driver past its library, since the region was made, modulo 2^32."""

    namespaces: int = 0
    """Libraries that they opened in another namespace of the dynamic linker, with `dlmopen`."""
    second_drivers: int = 0
    """Programs that used a second copy of the driver."""


def decode_unreached(layout: Layout, head: bytes | memoryview) -> Unreached:
    """Return what the region's first bytes say; zeros if its library does not count."""
    if not _has_records(layout, head):
        return Unreached()
    [word] = struct.unpack_from("<Q", head, UNREACHED)
    return Unreached(word >> 32, word & 0xFFFFFFFF)


def decode_waits(layout: Layout, head: bytes | memoryview) -> tuple[WaitRecord, ...]:
    """Return a record for each reason for which there were waits, from the region's first bytes."""
    if not _has_records(layout, head):
        return ()
    words = _WAIT_WORDS.unpack_from(head, _memory(0) + WAITS)
    return tuple(
        WaitRecord(reason, counts >> 32, nanoseconds, counts & 0xFFFFFFFF)
        for reason, nanoseconds, counts in zip(WAIT_REASONS, words[::2], words[1::2], strict=True)
        if counts >> 32
    )


def decode_records(layout: Layout, head: bytes | memoryview, device_count: int) -> tuple[DeviceRecords, ...] | None:
    """Return the records of the first *device_count* devices, from the region's first bytes; None if it has none."""
    if not _has_records(layout, head):
        return None
    return tuple(_device_records(head, device) for device in range(min(device_count, DEVICES)))


def _has_records(layout: Layout, head: bytes | memoryview) -> bool:
    return layout is LAYOUT_V1_2 and bool(struct.unpack_from("<Q", head, MARK_START)[0] == MARK)


def _memory(device: int) -> int:
    """Return the offset of what the first slot says of a device's memory."""
    return LAYOUT_V1_2.procs + LAYOUT_V1_2.slot_used + LAYOUT_V1_2.memory_size * device


def _device_records(head: bytes | memoryview, device: int) -> DeviceRecords:
    use = LAYOUT_V1_2.procs + (LAYOUT_V1_2.slot_device_util or 0) + LAYOUT_V1_2.util_size * device
    [peak] = struct.unpack_from("<Q", head, _memory(device) + PEAK)
    return DeviceRecords(peak, *struct.unpack_from("<2Q", head, use + WAITED))
