"""
Region files and container directories as a Node has them.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from hamicommon.wire.region.layout import LAYOUT_V1_2, MAGIC, UUID_BYTES, Layout
from hamicommon.wire.region.records import (
    MARK,
    MARK_START,
    PEAK,
    UNREACHED,
    WAIT_REASONS,
    WAITED,
    WAITING,
    WAITS,
    DeviceRecords,
    Unreached,
    WaitRecord,
)

SEMAPHORE = struct.pack("<IIi", 1, 0, 128)
"""A free process-shared semaphore, as glibc initialises it."""


@dataclass
class Process:
    """One process slot: amounts by device as (context, module, data, offset, total), and device time in percent."""

    memory: dict[int, tuple[int, int, int, int, int]] = field(default_factory=dict)
    utilization: dict[int, int] = field(default_factory=dict)
    status: int = 1
    waiting: dict[int, int] = field(default_factory=dict)
    """Launches that wait, by device."""


def a_region(
    layout: Layout = LAYOUT_V1_2,
    *,
    uuids: tuple[bytes, ...] = (b"GPU-a",),
    device_count: int | None = None,
    limits: tuple[int, ...] = (),
    processes: tuple[Process, ...] = (),
    priority: int = 1,
    utilization_switch: int = 1,
    recent_kernel: int = 2,
    last_kernel_time: int = 0,
    records: tuple[DeviceRecords, ...] | None = None,
    waits: tuple[WaitRecord, ...] = (),
    unreached: Unreached | None = None,
) -> bytearray:
    """Return a region file as a library with *layout* leaves it; with *records*, as this project's library does."""
    data = bytearray(layout.region_size + 1)

    def put(offset: int | None, kind: str, *values: int) -> None:
        if offset is not None:
            struct.pack_into("<" + kind, data, offset, *values)

    put(0, "i", MAGIC)
    put(layout.major_version, "I", 1)
    put(layout.minor_version, "I", 2 if layout is LAYOUT_V1_2 else 1)
    for semaphore in (layout.sem, layout.sem_postinit):
        if semaphore is not None:
            data[semaphore : semaphore + len(SEMAPHORE)] = SEMAPHORE
    put(layout.device_count, "Q", len(uuids) if device_count is None else device_count)
    for index, uuid in enumerate(uuids):
        start = layout.uuids + index * UUID_BYTES
        data[start : start + len(uuid)] = uuid
    put(layout.limit, f"{len(limits)}Q", *limits)
    for index, process in enumerate(processes):
        slot = layout.procs + index * layout.slot_size
        put(slot, "ii", 100 + index, 1000 + index)
        put(slot + layout.slot_status, "i", process.status)
        for device, amounts in process.memory.items():
            put(slot + layout.slot_used + device * layout.memory_size, "5Q", *amounts)
        for device, percent in process.utilization.items():
            if layout.slot_device_util is not None:
                put(slot + layout.slot_device_util + device * layout.util_size + 16, "Q", percent)
        for device, count in process.waiting.items():
            put(slot + (layout.slot_device_util or 0) + device * layout.util_size + WAITING, "Q", count)
    if records is not None:
        put(MARK_START, "Q", MARK)
    for offset, word in _own_words(layout, records or (), waits, unreached):
        put(offset, "Q", word)
    put(layout.proc_num, "i", len(processes))
    put(layout.utilization_switch, "i", utilization_switch)
    put(layout.recent_kernel, "i", recent_kernel)
    put(layout.priority, "i", priority)
    put(layout.last_kernel_time, "Q", last_kernel_time)
    return data


def _own_words(
    layout: Layout, records: Iterable[DeviceRecords], waits: Iterable[WaitRecord], unreached: Unreached | None
) -> Iterator[tuple[int, int]]:
    """Yield offsets and values of the words that this project's library adds."""
    for device, record in enumerate(records):
        yield layout.procs + layout.slot_used + device * layout.memory_size + PEAK, record.peak_bytes
        waited = layout.procs + (layout.slot_device_util or 0) + device * layout.util_size + WAITED
        yield waited, record.waited_launches
        yield waited + 8, record.waited_nanoseconds
    for wait in waits:
        words = (wait.nanoseconds, wait.waits << 32 | wait.longest_microseconds)
        for device, word in enumerate(words, 2 * WAIT_REASONS.index(wait.reason)):
            yield layout.procs + layout.slot_used + device * layout.memory_size + WAITS, word
    if unreached is not None:
        yield UNREACHED, unreached.namespaces << 32 | unreached.second_drivers


@dataclass
class HookPath:
    """A HOOK_PATH directory with container directories as the device plugin creates them."""

    path: Path

    @property
    def containers(self) -> Path:
        """The directory of container directories."""
        return self.path / "containers"

    def add(self, name: str, content: bytes | bytearray | None = None, file_name: str = "r.cache") -> Path:
        """Create the directory *name* with the library's mount point and a region of *content*; return the region."""
        directory = self.containers / name
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "libvgpu.so").touch()
        region = directory / file_name
        if content is not None:
            region.write_bytes(content)
        return region
