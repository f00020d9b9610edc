"""
The layouts of the region file: where each build of the library keeps each value, and which build wrote a file.

| layout | written by the library of | recognised by |
|---|---|---|
| v0-early | before any release (2024-01) | size 804681 |
| v0 | HAMi up to 2.4.0 | size 1197897 |
| v1.1 | 2.4.1 to 2.8.0 | size 2008953, version 1.1 |
| v1.1-seqlock-first | a branch, never released | as v1.1; shows in the slots only |
| v1.1-shifted | 2.8.1 | size 2008985, version 1.1, a second semaphore |
| v1.2 | 2.8.2 and later | size 2008953, version 1.2 |

All are little endian, natural alignment, 16 devices, 1024 slots; a file is one byte longer than its struct. The offsets
are also in `vectors/region/layouts.json`, which the library's own tests read.
Neighbours: `codec` reads and writes the values.
Source: https://github.com/Project-HAMi/HAMi-core/blob/main/src/multiprocess/multiprocess_memory_limit.h
"""

import struct
from dataclasses import dataclass, replace
from typing import Final

from hamicommon.wire.errors import DecodeError

MAGIC: Final = 19920718
DEVICES: Final = 16
SLOTS: Final = 1024
UUID_BYTES: Final = 96
SHARED_SEMAPHORE: Final = 128
"""glibc's value in the third word of a semaphore that processes share."""
HEADER_BYTES: Final = 104
"""How much of a file `detect_layout` reads."""

_MAX_MINOR: Final = 255
"""HAMi's monitor accepts any minor version, so later versions keep the fields of 1.2 in their places."""
_SHIFTED_SEMAPHORE: Final = 56


@dataclass(frozen=True, slots=True)
class Layout:
    """Sizes, offsets in the region, and offsets in a slot. None: no such field."""

    name: str
    region_size: int
    slot_size: int
    memory_size: int
    util_size: int
    owner_pid: int
    sem: int
    device_count: int
    uuids: int
    limit: int
    sm_limit: int
    procs: int
    proc_num: int
    utilization_switch: int
    recent_kernel: int
    priority: int
    slot_used: int
    slot_monitor_used: int
    slot_status: int
    sm_init_flag: int
    major_version: int | None
    minor_version: int | None
    last_kernel_time: int | None = None
    sem_postinit: int | None = None
    slot_device_util: int | None = None
    slot_seqlock: int | None = None
    slot_pid: int = 0
    slot_host_pid: int = 4


LAYOUT_V0_EARLY: Final = Layout(
    name="v0-early",
    region_size=804680,
    slot_size=784,
    memory_size=40,
    util_size=0,
    sm_init_flag=4,
    major_version=None,
    minor_version=None,
    owner_pid=8,
    sem=16,
    device_count=48,
    uuids=56,
    limit=1592,
    sm_limit=1720,
    procs=1848,
    proc_num=804664,
    utilization_switch=804668,
    recent_kernel=804672,
    priority=804676,
    slot_used=8,
    slot_monitor_used=648,
    slot_status=776,
)
LAYOUT_V0: Final = replace(
    LAYOUT_V0_EARLY,
    name="v0",
    region_size=1197896,
    slot_size=1168,
    util_size=24,
    proc_num=1197880,
    utilization_switch=1197884,
    recent_kernel=1197888,
    priority=1197892,
    slot_device_util=776,
    slot_status=1160,
)
LAYOUT_V1_1: Final = Layout(
    name="v1.1",
    region_size=2008952,
    slot_size=1960,
    memory_size=64,
    util_size=48,
    sm_init_flag=12,
    major_version=4,
    minor_version=8,
    owner_pid=16,
    sem=24,
    device_count=56,
    uuids=64,
    limit=1600,
    sm_limit=1728,
    procs=1856,
    proc_num=2008896,
    utilization_switch=2008900,
    recent_kernel=2008904,
    priority=2008908,
    last_kernel_time=2008912,
    slot_used=8,
    slot_monitor_used=1032,
    slot_device_util=1160,
    slot_status=1928,
)
LAYOUT_V1_2: Final = replace(LAYOUT_V1_1, name="v1.2", sem_postinit=2008920, slot_seqlock=1936)
LAYOUT_V1_1_SEQLOCK_FIRST: Final = replace(
    LAYOUT_V1_1,
    name="v1.1-seqlock-first",
    slot_seqlock=8,
    slot_used=16,
    slot_monitor_used=1040,
    slot_device_util=1168,
    slot_status=1936,
)
LAYOUT_V1_1_SHIFTED: Final = replace(
    LAYOUT_V1_1_SEQLOCK_FIRST,
    name="v1.1-shifted",
    region_size=2008984,
    sem_postinit=56,
    device_count=88,
    uuids=96,
    limit=1632,
    sm_limit=1760,
    procs=1888,
    proc_num=2008928,
    utilization_switch=2008932,
    recent_kernel=2008936,
    priority=2008940,
    last_kernel_time=2008944,
)
LAYOUTS: Final = (
    LAYOUT_V0_EARLY,
    LAYOUT_V0,
    LAYOUT_V1_1,
    LAYOUT_V1_1_SEQLOCK_FIRST,
    LAYOUT_V1_1_SHIFTED,
    LAYOUT_V1_2,
)


def detect_layout(size: int, header: bytes | memoryview) -> Layout:
    """
    Return the layout of a file of *size* bytes; *header* is its first `HEADER_BYTES` or more.

    The header is the same for v1.1 and v1.1-seqlock-first; `refined_layout` distinguishes them.

    Raises: DecodeError when the file is no region, is too short, or has a version that no library writes.
    """
    if size < LAYOUT_V0_EARLY.region_size or len(header) < HEADER_BYTES:
        raise DecodeError("size", f"{size} bytes are too few for a region")
    magic, major, minor = struct.unpack_from("<iII", header)
    if magic != MAGIC:
        raise DecodeError("byte 0", f"{magic} is not {MAGIC}: no region, or not initialised yet")
    is_versioned = major == 1 and 1 <= minor <= _MAX_MINOR
    if size < LAYOUT_V1_1.region_size:
        if is_versioned and _has_semaphore(header, LAYOUT_V1_1.sem):
            raise DecodeError("size", f"{size} bytes are too few for a region of version {major}.{minor}")
        return _unversioned(size)
    if not is_versioned:
        raise DecodeError("byte 4", f"version {major}.{minor} in {size} bytes is none that a library writes")
    if minor > 1:
        return LAYOUT_V1_2
    # Where the shifted layout has its second semaphore, the others have the first device's UUID.
    if not _has_semaphore(header, _SHIFTED_SEMAPHORE):
        return LAYOUT_V1_1
    if size < LAYOUT_V1_1_SHIFTED.region_size:
        raise DecodeError("size", f"{size} bytes are too few for layout {LAYOUT_V1_1_SHIFTED.name}")
    return LAYOUT_V1_1_SHIFTED


def refined_layout(layout: Layout, view: memoryview) -> Layout:
    """
    Return the layout after a check of the places where a library of another layout writes.

    Raises: DecodeError when libraries of two layouts wrote to the file.
    """
    refuse_second_layout(layout, view)
    if layout is not LAYOUT_V1_1:
        return layout
    count = max(0, min(i32(view, layout.proc_num), SLOTS))
    slots = view[layout.procs : layout.procs + layout.slot_size * count]
    return LAYOUT_V1_1_SEQLOCK_FIRST if has_seqlock_first(slots) else layout


def refuse_second_layout(layout: Layout, view: memoryview, start: int = 0) -> None:
    """
    Check that no library of a layout other than *layout* wrote to the region; *view* begins at its byte *start*.

    Raises: DecodeError
    """
    if layout.last_kernel_time is None:
        return
    other = LAYOUT_V1_1 if layout is LAYOUT_V1_1_SHIFTED else LAYOUT_V1_1_SHIFTED
    # Every library sets its time when it joins, and the other layout keeps nothing at that place.
    if other.last_kernel_time and u64(view, other.last_kernel_time - start):
        reason = f"a library of layout {other.name} wrote to a region of layout {layout.name}"
        raise DecodeError(f"byte {other.last_kernel_time}", reason)


def has_seqlock_first(slots: memoryview) -> bool:
    """Return whether the first used slot of version 1.1 has its status eight bytes later than that version."""
    if not slots:
        return False
    words, step = slots.cast("i"), LAYOUT_V1_1.slot_size // 4
    columns = (0, LAYOUT_V1_1.slot_status // 4, LAYOUT_V1_1_SEQLOCK_FIRST.slot_status // 4)
    for pid, here, later in zip(*(words[column::step].tolist() for column in columns), strict=True):
        if pid:
            return here == 0 and later in (1, 2)
    return False


def i32(view: bytes | memoryview, offset: int) -> int:
    """Read a signed number of four bytes."""
    return int.from_bytes(view[offset : offset + 4], "little", signed=True)


def u32(view: bytes | memoryview, offset: int) -> int:
    """Read an unsigned number of four bytes."""
    return int.from_bytes(view[offset : offset + 4], "little")


def u64(view: bytes | memoryview, offset: int) -> int:
    """Read an unsigned number of eight bytes."""
    return int.from_bytes(view[offset : offset + 8], "little")


def _has_semaphore(header: bytes | memoryview, offset: int) -> bool:
    """Return whether a process-shared semaphore of glibc begins at *offset*: 128 in its third word."""
    return u32(header, offset + 8) == SHARED_SEMAPHORE


def _unversioned(size: int) -> Layout:
    """Return the layout of a file without version fields; the first one has no room to grow into the next."""
    if size >= LAYOUT_V0.region_size:
        return LAYOUT_V0
    if size <= LAYOUT_V0_EARLY.region_size + 1:
        return LAYOUT_V0_EARLY
    raise DecodeError("size", f"{size} bytes without a version are no layout that a library writes")
