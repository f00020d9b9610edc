"""
The values of a region file.

Neighbours: `layout` has the places. The monitor maps the files and adds up their values.
Source: https://github.com/Project-HAMi/HAMi-core/blob/main/src/multiprocess/multiprocess_memory_limit.h
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING, Final

from hamicommon.wire.errors import EncodeError
from hamicommon.wire.region.layout import (
    DEVICES,
    LAYOUTS,
    MAGIC,
    SHARED_SEMAPHORE,
    SLOTS,
    UUID_BYTES,
    Layout,
    detect_layout,
    i32,
    refined_layout,
    u32,
    u64,
)

if TYPE_CHECKING:
    from mmap import mmap

_SIXTEEN: Final = "<16Q"


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """
    What one process has taken of one device, in bytes, as its library counts.

    Just below 2**64 stands for a negative number: libraries up to 2.8.2 charge some frees to the wrong device.
    """

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
    """The process that holds the region's lock, 0 if it is free."""
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


def decode_region(data: "bytes | bytearray | memoryview | mmap") -> Region:
    """
    Return the values of the region file *data* as they are: none is judged, added or corrected.

    Counts are clamped to what the file has room for. The file may change while it is read; each field is read once.

    Raises: DecodeError as `detect_layout`, and when libraries of two layouts wrote to the file.
    """
    view = memoryview(data)
    layout = refined_layout(detect_layout(len(view), view), view)
    device_count = min(u64(view, layout.device_count), DEVICES)
    slot_count = max(0, min(i32(view, layout.proc_num), SLOTS))
    return Region(
        layout=layout.name,
        major=None if layout.major_version is None else u32(view, layout.major_version),
        minor=None if layout.minor_version is None else u32(view, layout.minor_version),
        sm_init_flag=i32(view, layout.sm_init_flag),
        owner_pid=u64(view, layout.owner_pid),
        lock_value=u32(view, layout.sem),
        postinit_lock_value=None if layout.sem_postinit is None else u32(view, layout.sem_postinit),
        device_count=device_count,
        uuids=tuple(_uuid(view, layout.uuids + UUID_BYTES * index) for index in range(device_count)),
        memory_limits_bytes=struct.unpack_from(_SIXTEEN, view, layout.limit),
        sm_limits_percent=struct.unpack_from(_SIXTEEN, view, layout.sm_limit),
        priority=i32(view, layout.priority),
        utilization_switch=i32(view, layout.utilization_switch),
        recent_kernel=i32(view, layout.recent_kernel),
        last_kernel_time=None if layout.last_kernel_time is None else u64(view, layout.last_kernel_time),
        slots=tuple(_slot(view, layout, index) for index in range(slot_count)),
    )


def encode_region(region: Region) -> bytes:
    """
    Return a file that says what *region* does, as the library of its layout lays it out.

    Raises: EncodeError when the layout is unknown, or a number does not fit its field.
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


def _slot(view: memoryview, layout: Layout, index: int) -> Slot:
    start = layout.procs + layout.slot_size * index
    monitor_used = struct.unpack_from(_SIXTEEN, view, start + layout.slot_monitor_used)
    return Slot(
        index=index,
        pid=i32(view, start + layout.slot_pid),
        host_pid=i32(view, start + layout.slot_host_pid),
        status=i32(view, start + layout.slot_status),
        seqlock=None if layout.slot_seqlock is None else u64(view, start + layout.slot_seqlock),
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
    struct.pack_into("<IIi", data, layout.sem, region.lock_value, 0, SHARED_SEMAPHORE)
    if layout.sem_postinit is not None:
        struct.pack_into("<IIi", data, layout.sem_postinit, region.postinit_lock_value, 0, SHARED_SEMAPHORE)
    struct.pack_into(_SIXTEEN, data, layout.limit, *region.memory_limits_bytes)
    struct.pack_into(_SIXTEEN, data, layout.sm_limit, *region.sm_limits_percent)
    for index, uuid in enumerate(region.uuids):
        struct.pack_into(f"{UUID_BYTES}s", data, layout.uuids + UUID_BYTES * index, uuid.encode())
    for slot in region.slots:
        _put_slot(data, layout, slot)


def _put_slot(data: bytearray, layout: Layout, slot: Slot) -> None:
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
