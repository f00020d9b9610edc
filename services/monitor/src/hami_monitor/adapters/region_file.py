"""
Read one region file, and store the two fields that the monitor may write.

The container may shrink, replace or garble the file at any moment, or put a link or a pipe in its place. So the file is
read by `preadv`, which stops at its end, while reading a mapping would end the process. Only the page with the two
fields is mapped. Must never write anything else.
Neighbours: `hamicommon.wire.region` knows the layouts, `regions` has one of these for each container.
"""

import ctypes
import errno
import mmap
import os
import stat
from functools import cache
from pathlib import Path
from typing import Self

from hami_monitor.adapters.atomic_store import store_int32
from hami_monitor.decide.containers import Refusal
from hami_monitor.decide.feedback import FeedbackWrite
from hami_monitor.decide.usage import RegionReading
from hamicommon.errors import HamiError
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.region import (
    DEVICES,
    HEADER_BYTES,
    SLOTS,
    UUID_BYTES,
    Layout,
    decode_region,
    detect_layout,
)

OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Do not follow a link out of the container's directory, and do not wait at a pipe."""


class RegionRefusedError(HamiError):
    """A region file cannot be read: `refusal` is the kind of problem, `detail` the text."""

    def __init__(self, path: Path, refusal: Refusal, detail: str) -> None:
        super().__init__(f"{path}: {detail}")
        self.path = path
        self.refusal = refusal
        self.detail = detail


class RegionUnusedError(RegionRefusedError):
    """A region file is as the device plugin made or cleared it: no library has used it since."""


class RegionFile:
    """One open region file."""

    def __init__(self, path: Path, descriptor: int) -> None:
        """
        Use *descriptor*, which is open for reading and writing. Callers use `open`.

        Raises:
            RegionRefusedError: it is not a regular file, or not a region of a known layout.
        """
        self._path = path
        self._descriptor = descriptor
        self._status = os.fstat(descriptor)
        if not stat.S_ISREG(self._status.st_mode):
            raise self._refused(Refusal.UNREADABLE, f"is not a regular file but {stat.filemode(self._status.st_mode)}")
        self._layout = self._detect()
        self._page_start, self._page = self._map()

    @classmethod
    def open(cls, path: Path) -> Self:
        """
        Open the file at *path* and read it once.

        Raises:
            RegionRefusedError: it cannot be opened, is not a regular file, or not a region of a known layout.
        """
        try:
            descriptor = os.open(path, OPEN_FLAGS)
        except OSError as error:
            raise RegionRefusedError(path, Refusal.UNREADABLE, f"cannot be opened: {error.strerror}") from error
        try:
            file = cls(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        try:
            file.read()
        except BaseException:
            file.close()
            raise
        return file

    def is_at(self, path: Path) -> bool:
        """Return whether *path* still names this file, and not a new one."""
        try:
            status = path.lstat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self._status.st_dev, self._status.st_ino)

    def read(self) -> RegionReading:
        """
        Return the present contents of the region.

        Only its head, the slots in use and its tail are read. The tail includes the last slot, because a library of
        another layout writes there.

        Raises:
            RegionRefusedError: the file was shrunk, or its layout has changed since it was opened.
        """
        size = os.fstat(self._descriptor).st_size
        if size < self._layout.region_size:
            raise self._refused(Refusal.TRUNCATED, f"has {size} bytes, {self._layout.name} has more")
        layout = self._detect()
        if layout is not self._layout:
            raise self._refused(Refusal.UNKNOWN_LAYOUT, f"was {self._layout.name}, now says {layout.name}")
        view = _scratch(layout.region_size)
        self._fill(view, layout.proc_num - layout.slot_size, layout.region_size)
        slots = int.from_bytes(view[layout.proc_num : layout.proc_num + 4], "little", signed=True)
        self._fill(view, 0, layout.procs + max(0, min(slots, SLOTS)) * layout.slot_size)
        try:
            region = decode_region(view)
        except DecodeError as error:
            raise self._refused(Refusal.UNKNOWN_LAYOUT, str(error)) from error
        return RegionReading(region, _uuids(view, layout))

    def store(self, write: FeedbackWrite) -> list[str]:
        """
        Store the fields of *write* that are not None and return their names.

        Raises:
            RegionRefusedError: the file was shrunk and no longer has them.
        """
        stored = []
        for name, offset, value in (
            ("recent_kernel", self._layout.recent_kernel, write.recent_kernel),
            ("utilization_switch", self._layout.utilization_switch, write.utilization_switch),
        ):
            if value is not None:
                self._store(offset, value)
                stored.append(name)
        return stored

    def close(self) -> None:
        """Unmap and close."""
        self._page.close()
        os.close(self._descriptor)

    def _detect(self) -> Layout:
        try:
            size, header = os.fstat(self._descriptor).st_size, os.pread(self._descriptor, HEADER_BYTES, 0)
            if not any(header):
                raise RegionUnusedError(self._path, Refusal.UNKNOWN_LAYOUT, "no library has used it")
            return detect_layout(size, header)
        except DecodeError as error:
            raise self._refused(Refusal.UNKNOWN_LAYOUT, str(error)) from error
        except OSError as error:
            raise self._refused(Refusal.UNREADABLE, f"cannot be read: {error.strerror}") from error

    def _map(self) -> tuple[int, mmap.mmap]:
        """Map the page of the two fields; return where in the file it begins, and the mapping."""
        first, last = sorted((self._layout.recent_kernel, self._layout.utilization_switch))
        start = first - first % mmap.ALLOCATIONGRANULARITY
        try:
            return start, mmap.mmap(self._descriptor, last + 4 - start, offset=start)
        except (OSError, ValueError) as error:
            raise self._refused(Refusal.TRUNCATED, f"cannot be mapped: {error}") from error

    def _fill(self, view: memoryview, start: int, end: int) -> None:
        """Read the bytes *start* to *end* of the file into their place in *view*."""
        try:
            count = os.preadv(self._descriptor, [view[start:end]], start)
        except OSError as error:
            raise self._refused(Refusal.UNREADABLE, f"cannot be read: {error.strerror}") from error
        if count < end - start:
            raise self._refused(Refusal.TRUNCATED, f"ends at byte {start + count}, before byte {end}")

    def _store(self, offset: int, value: int) -> None:
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._page))
        try:
            store_int32(start + offset - self._page_start, value)
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise
            raise self._refused(Refusal.TRUNCATED, f"ends before byte {offset}") from error

    def _refused(self, refusal: Refusal, detail: str) -> RegionRefusedError:
        return RegionRefusedError(self._path, refusal, detail)


@cache
def _scratch(size: int) -> memoryview:
    """Return the only buffer for regions of *size* bytes; each reading is decoded before the next starts."""
    return memoryview(bytearray(size))


def _uuids(view: memoryview, layout: Layout) -> tuple[bytes, ...]:
    starts = range(layout.uuids, layout.uuids + DEVICES * UUID_BYTES, UUID_BYTES)
    return tuple(bytes(view[start : start + UUID_BYTES]).partition(b"\0")[0] for start in starts)
