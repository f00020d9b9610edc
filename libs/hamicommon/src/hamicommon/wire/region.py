"""
The file that the library in the containers and the monitor on the Node share: `*.cache`, mapped by both.

| layout | written by the library of | told by |
|---|---|---|
| v0-early | before any release (2024-01) | size 804681 |
| v0 | HAMi up to 2.4.0 | size 1197897 |
| v1.1 | 2.4.1 to 2.8.0 | size 2008953, version 1.1 |
| v1.1-seqlock-first | a branch, never released | as v1.1; shows in the slots only |
| v1.1-shifted | 2.8.1 | size 2008985, version 1.1 |
| v1.2 | 2.8.2 and later | size 2008953, version 1.2 |

All are little endian, natural alignment, 16 devices, 1024 slots; a file is one byte longer than its struct. Owns the
offsets and the reading; mapping files is the monitor's part. The offsets are also in `vectors/region/layouts.json`,
which the library's own tests read.
Source: https://github.com/Project-HAMi/HAMi-core/blob/main/src/multiprocess/multiprocess_memory_limit.h
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Final

from hamicommon.wire.errors import DecodeError, EncodeError

if TYPE_CHECKING:
    from mmap import mmap

MAGIC: Final = 19920718
DEVICES: Final = 16
SLOTS: Final = 1024
UUID_BYTES: Final = 96
HEADER_BYTES: Final = 104
"""How much of a file `detect_layout` looks at."""

_WRAPPED: Final = 1 << 63
"""Counters at or above this went below zero; the library subtracts without looking."""
_MAX_MINOR: Final = 255
"""HAMi's own monitor takes any minor version, so its library keeps the fields where 1.2 has them."""
_SEM_SHARED: Final = 128
_SHIFTED_SEM: Final = 56
_SIXTEEN: Final = "<16Q"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where everything is: offsets in the region, offsets in a slot, sizes. None: no such field."""

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


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What one process has taken of one device, in bytes, as its library counts."""

    context: int = 0
    module: int = 0
    data: int = 0
    offset: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class DeviceUtilization:
    """How busy one process keeps one device, in percent, as its library measures."""

    dec: int = 0
    enc: int = 0
    sm: int = 0


@dataclass(frozen=True, slots=True)
class Slot:
    """One process. Devices that are all zero are left out of the maps, whose keys are device indexes."""

    index: int
    pid: int
    """In the container's pid namespace; 0 is a free slot."""
    host_pid: int
    """On the host; 0 is not known."""
    status: int
    """1 running, 2 suspended, 0 gone or free."""
    seqlock: int | None = None
    memory: Mapping[int, DeviceMemory] = field(default_factory=dict, hash=False)
    monitor_used_bytes: Mapping[int, int] = field(default_factory=dict, hash=False)
    utilization: Mapping[int, DeviceUtilization] | None = field(default=None, hash=False)


@dataclass(frozen=True, slots=True)
class Region:
    """What a region file says."""

    layout: str
    major: int | None
    minor: int | None
    sm_init_flag: int
    owner_pid: int
    """Who holds the region's lock, 0 for nobody."""
    lock_value: int
    postinit_lock_value: int | None
    device_count: int
    """At most 16, whatever the file says."""
    uuids: tuple[str, ...]
    """One per device, empty where not filled in yet; bytes that are no UTF-8 are escaped as `\\xff`."""
    memory_limits_bytes: tuple[int, ...]
    """16 entries; 0 is no limit."""
    sm_limits_percent: tuple[int, ...]
    """16 entries."""
    priority: int
    utilization_switch: int
    recent_kernel: int
    last_kernel_time: int | None
    """Unix seconds."""
    slots: tuple[Slot, ...]
    """Those in use, at most 1024 whatever the file says."""


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What all live processes of a region use of one device together."""

    memory: DeviceMemory
    utilization: DeviceUtilization
    monitor_used_bytes: int
    is_suspect: bool
    """A counter had gone below zero or was impossibly large; it counts as 0 here."""


def detect_layout(size: int, header: bytes | memoryview) -> Layout:
    """
    Return the layout of a file of *size* bytes that begins with *header*, at least `HEADER_BYTES` of it.

    A version 1.1 file of the branch that never shipped looks like any other from here; `decode_region` looks further.

    Raises: DecodeError when it is no region, too short for its version, or of a version that no library writes.
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
    if not _has_semaphore(header, _SHIFTED_SEM):
        return LAYOUT_V1_1
    if size < LAYOUT_V1_1_SHIFTED.region_size:
        raise DecodeError("size", f"{size} bytes are too few for layout {LAYOUT_V1_1_SHIFTED.name}")
    return LAYOUT_V1_1_SHIFTED


def decode_region(data: "bytes | bytearray | memoryview | mmap") -> Region:
    """
    Return what the region file *data* says, as its bytes say it: nothing is judged, added or corrected.

    Counts are clamped to what the file has room for. The file may change while it is read; each field is read once.

    Raises: DecodeError as `detect_layout`, and when libraries of two layouts wrote to the file.
    """
    view = memoryview(data)
    layout = _refined(detect_layout(len(view), view), view)
    device_count = min(_u64(view, layout.device_count), DEVICES)
    slot_count = max(0, min(_i32(view, layout.proc_num), SLOTS))
    return Region(
        layout=layout.name,
        major=None if layout.major_version is None else _u32(view, layout.major_version),
        minor=None if layout.minor_version is None else _u32(view, layout.minor_version),
        sm_init_flag=_i32(view, layout.sm_init_flag),
        owner_pid=_u64(view, layout.owner_pid),
        lock_value=_u32(view, layout.sem),
        postinit_lock_value=None if layout.sem_postinit is None else _u32(view, layout.sem_postinit),
        device_count=device_count,
        uuids=tuple(_uuid(view, layout.uuids + UUID_BYTES * index) for index in range(device_count)),
        memory_limits_bytes=struct.unpack_from(_SIXTEEN, view, layout.limit),
        sm_limits_percent=struct.unpack_from(_SIXTEEN, view, layout.sm_limit),
        priority=_i32(view, layout.priority),
        utilization_switch=_i32(view, layout.utilization_switch),
        recent_kernel=_i32(view, layout.recent_kernel),
        last_kernel_time=None if layout.last_kernel_time is None else _u64(view, layout.last_kernel_time),
        slots=tuple(_slot(view, layout, index) for index in range(slot_count)),
    )


def encode_region(region: Region) -> bytes:
    """
    Return a file that says what *region* does, as the library of its layout lays it out.

    Raises: EncodeError when the layout is none of ours, or a number does not fit its field.
    """
    layout = next((layout for layout in LAYOUTS if layout.name == region.layout), None)
    if layout is None:
        names = ", ".join(layout.name for layout in LAYOUTS)
        raise EncodeError("layout", f"{region.layout!r} is not one of {names}")
    data = bytearray(layout.region_size + 1)
    try:
        _put_region(data, layout, region)
    except struct.error as error:
        raise EncodeError("region", f"a number does not fit its field: {error}") from None
    return bytes(data)


def device_usages(region: Region) -> tuple[DeviceUsage, ...]:
    """
    Return what all live processes use together, one entry per device.

    A slot whose status is 0 does not count. Counters that went below zero (libraries up to 2.8.2 charge some frees to
    the wrong device) count as nothing and make the device's entry suspect; sums stop at the largest 63-bit number.
    """
    return tuple(_device_usage(region, device) for device in range(region.device_count))


def _has_semaphore(header: bytes | memoryview, offset: int) -> bool:
    """Say whether a process-shared semaphore of glibc begins at *offset*: 128 in its third word."""
    return _u32(header, offset + 8) == _SEM_SHARED


def _unversioned(size: int) -> Layout:
    """Return the layout of a file without version fields; the first one has no room to grow into the next."""
    if size >= LAYOUT_V0.region_size:
        return LAYOUT_V0
    if size <= LAYOUT_V0_EARLY.region_size + 1:
        return LAYOUT_V0_EARLY
    raise DecodeError("size", f"{size} bytes without a version are no layout that a library writes")


def _refined(layout: Layout, view: memoryview) -> Layout:
    """Return the layout after a look at the places where another layout's library would have written."""
    if layout.last_kernel_time is None:
        return layout
    other = LAYOUT_V1_1 if layout is LAYOUT_V1_1_SHIFTED else LAYOUT_V1_1_SHIFTED
    # Every library sets its time when it joins, and the other layout keeps nothing at that place.
    if other.last_kernel_time and _u64(view, other.last_kernel_time):
        reason = f"a library of layout {other.name} wrote to a region of layout {layout.name}"
        raise DecodeError(f"byte {other.last_kernel_time}", reason)
    if layout is LAYOUT_V1_1 and _has_seqlock_first(view):
        return LAYOUT_V1_1_SEQLOCK_FIRST
    return layout


def _has_seqlock_first(view: memoryview) -> bool:
    """Say whether the slots in use have their status eight bytes later than version 1.1 has it."""
    count = max(0, min(_i32(view, LAYOUT_V1_1.proc_num), SLOTS))
    for index in range(count):
        start = LAYOUT_V1_1.procs + LAYOUT_V1_1.slot_size * index
        if _i32(view, start) == 0:
            continue
        here = _i32(view, start + LAYOUT_V1_1.slot_status)
        later = _i32(view, start + LAYOUT_V1_1_SEQLOCK_FIRST.slot_status)
        return here == 0 and later in (1, 2)
    return False


def _slot(view: memoryview, layout: Layout, index: int) -> Slot:
    """Read one process."""
    start = layout.procs + layout.slot_size * index
    monitor_used = struct.unpack_from(_SIXTEEN, view, start + layout.slot_monitor_used)
    return Slot(
        index=index,
        pid=_i32(view, start + layout.slot_pid),
        host_pid=_i32(view, start + layout.slot_host_pid),
        status=_i32(view, start + layout.slot_status),
        seqlock=None if layout.slot_seqlock is None else _u64(view, start + layout.slot_seqlock),
        memory={
            device: DeviceMemory(*counters)
            for device, counters in _records(view, start + layout.slot_used, layout.memory_size, "<5Q")
        },
        monitor_used_bytes={device: used for device, used in enumerate(monitor_used) if used},
        utilization=None
        if layout.slot_device_util is None
        else {
            device: DeviceUtilization(*counters)
            for device, counters in _records(view, start + layout.slot_device_util, layout.util_size, "<3Q")
        },
    )


def _records(view: memoryview, start: int, size: int, form: str) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the devices of an array of records that are not all zero."""
    for device in range(DEVICES):
        counters = struct.unpack_from(form, view, start + size * device)
        if any(counters):
            yield device, counters


def _device_usage(region: Region, device: int) -> DeviceUsage:
    live = [slot for slot in region.slots if slot.status != 0]
    memory = [slot.memory.get(device, _NO_MEMORY) for slot in live]
    busy = [(slot.utilization or {}).get(device, _IDLE) for slot in live]
    sums = {name: [getattr(one, name) for one in memory] for name in ("context", "module", "data", "offset", "total")}
    busy_sums = {name: [getattr(one, name) for one in busy] for name in ("dec", "enc", "sm")}
    monitor_used = [slot.monitor_used_bytes.get(device, 0) for slot in live]
    every = [*sums.values(), *busy_sums.values(), monitor_used]
    return DeviceUsage(
        DeviceMemory(**{name: _sum(counters) for name, counters in sums.items()}),
        DeviceUtilization(**{name: _sum(counters) for name, counters in busy_sums.items()}),
        _sum(monitor_used),
        is_suspect=any(counter >= _WRAPPED for counters in every for counter in counters),
    )


def _sum(counters: Iterable[int]) -> int:
    """Add up what can be true, and stop at the largest number a reader of metrics can take."""
    return min(sum(counter for counter in counters if counter < _WRAPPED), _WRAPPED - 1)


def _put_region(data: bytearray, layout: Layout, region: Region) -> None:
    """Write the fields of *region* that its layout has."""
    struct.pack_into("<i", data, 0, MAGIC)
    for form, offset, value in (
        ("<I", layout.major_version, region.major),
        ("<I", layout.minor_version, region.minor),
        ("<i", layout.sm_init_flag, region.sm_init_flag),
        ("<Q", layout.owner_pid, region.owner_pid),
        ("<Q", layout.device_count, region.device_count),
        ("<i", layout.priority, region.priority),
        ("<i", layout.utilization_switch, region.utilization_switch),
        ("<i", layout.recent_kernel, region.recent_kernel),
        ("<Q", layout.last_kernel_time, region.last_kernel_time),
        ("<i", layout.proc_num, len(region.slots)),
    ):
        if offset is not None:
            struct.pack_into(form, data, offset, value)
    struct.pack_into("<IIi", data, layout.sem, region.lock_value, 0, _SEM_SHARED)
    if layout.sem_postinit is not None:
        struct.pack_into("<IIi", data, layout.sem_postinit, region.postinit_lock_value, 0, _SEM_SHARED)
    struct.pack_into(_SIXTEEN, data, layout.limit, *region.memory_limits_bytes)
    struct.pack_into(_SIXTEEN, data, layout.sm_limit, *region.sm_limits_percent)
    for index, uuid in enumerate(region.uuids):
        struct.pack_into(f"{UUID_BYTES}s", data, layout.uuids + UUID_BYTES * index, uuid.encode())
    for slot in region.slots:
        _put_slot(data, layout, slot)


def _put_slot(data: bytearray, layout: Layout, slot: Slot) -> None:
    """Write one process."""
    start = layout.procs + layout.slot_size * slot.index
    struct.pack_into("<ii", data, start, slot.pid, slot.host_pid)
    struct.pack_into("<i", data, start + layout.slot_status, slot.status)
    if layout.slot_seqlock is not None:
        struct.pack_into("<Q", data, start + layout.slot_seqlock, slot.seqlock)
    for device, used in slot.monitor_used_bytes.items():
        struct.pack_into("<Q", data, start + layout.slot_monitor_used + 8 * device, used)
    for device, memory in slot.memory.items():
        struct.pack_into("<5Q", data, start + layout.slot_used + layout.memory_size * device, *astuple(memory))
    for device, busy in (slot.utilization or {}).items():
        offset = start + (layout.slot_device_util or 0) + layout.util_size * device
        struct.pack_into("<3Q", data, offset, *astuple(busy))


def _uuid(view: memoryview, offset: int) -> str:
    """Read a NUL-padded name; bytes that are no UTF-8 stay visible."""
    return bytes(view[offset : offset + UUID_BYTES]).partition(b"\0")[0].decode("utf-8", "backslashreplace")


def _i32(view: bytes | memoryview, offset: int) -> int:
    return int.from_bytes(view[offset : offset + 4], "little", signed=True)


def _u32(view: bytes | memoryview, offset: int) -> int:
    return int.from_bytes(view[offset : offset + 4], "little")


def _u64(view: bytes | memoryview, offset: int) -> int:
    return int.from_bytes(view[offset : offset + 8], "little")


_NO_MEMORY: Final = DeviceMemory()
_IDLE: Final = DeviceUtilization()
