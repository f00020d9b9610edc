"""
Read one region file, and store the two fields that the monitor may write.

The container may shrink, replace or garble the file at any moment, or put a link, a pipe or a device in its place. So
the file is read by `preadv`, which stops at its end, while reading a mapping would end the process. Only the page with
the two fields is mapped. Must never write anything else.
Neighbours: `hamicommon.wire.region` knows the layouts, `regions` has one of these for each container.
"""

import ctypes
import errno
import mmap
import os
import stat
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Self

from hami_monitor.adapters.atomic_store import store_int32
from hami_monitor.decide.containers import Refusal
from hami_monitor.decide.feedback import FeedbackWrite
from hamicommon.errors import HamiError
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.region.layout import HEADER_BYTES, Layout, detect_layout
from hamicommon.wire.region.sums import ProcessSums, RegionState, decode_state, head_size, sum_processes, tail_start

LOOK_FLAGS = os.O_PATH | os.O_CLOEXEC | os.O_NOFOLLOW
"""Do not follow a link out of the container's directory. To open a device would already act on it; to look does not."""
OPEN_FLAGS = os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK
"""Do not wait for a lease that the container holds on its file."""


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
        Use *descriptor*, a regular file open for reading and writing. Callers use `open`.

        Raises:
            RegionRefusedError: it is not a region of a known layout.
        """
        self._path = path
        self._descriptor = descriptor
        self._status = os.fstat(descriptor)
        self._layout = self._detect(self._status.st_size, self._read(0, HEADER_BYTES, at_least=0))
        self._page_start, self._page = self._map()

    @classmethod
    def open(cls, path: Path) -> Self:
        """
        Open the file at *path* and read its state once.

        Raises:
            RegionRefusedError: it cannot be opened, is not a regular file, or not a region of a known layout.
        """
        descriptor = _open(path)
        try:
            file = cls(path, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        try:
            file.state()
        except BaseException:
            file.close()
            raise
        return file

    def is_at(self, path: str) -> bool:
        """Return whether *path* still names this file, and not a new one."""
        try:
            status = os.lstat(path)
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == (self._status.st_dev, self._status.st_ino)

    def state(self) -> RegionState:
        """
        Return what the region says about its container now. At most the first slot is read.

        Raises:
            RegionRefusedError: the file was shrunk, or its layout has changed since it was opened.
        """
        layout = self._layout
        size = os.fstat(self._descriptor).st_size
        if size < layout.region_size:
            raise self._refused(Refusal.TRUNCATED, f"has {size} bytes, {layout.name} has more")
        head = self._read(0, head_size(layout))
        now = self._detect(size, head[:HEADER_BYTES])
        if now is not layout:
            raise self._refused(Refusal.UNKNOWN_LAYOUT, f"was {layout.name}, now says {now.name}")
        start = tail_start(layout)
        tail = self._read(start, layout.region_size - start)
        try:
            return decode_state(layout, memoryview(head), memoryview(tail))
        except DecodeError as error:
            raise self._refused(Refusal.UNKNOWN_LAYOUT, str(error)) from error

    def sums(self, slot_count: int, devices: Collection[int]) -> ProcessSums:
        """
        Return the sums over the first *slot_count* slots for the device indexes *devices*.

        Raises:
            RegionRefusedError: the file was shrunk.
        """
        layout = self._layout
        view = _scratch(layout.region_size)[: slot_count * layout.slot_size]
        try:
            count = os.preadv(self._descriptor, [view], layout.procs)
        except OSError as error:
            raise self._refused(Refusal.UNREADABLE, f"cannot be read: {error.strerror}") from error
        if count < len(view):
            raise self._refused(Refusal.TRUNCATED, f"ends at byte {layout.procs + count}")
        return sum_processes(layout, view, devices)

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

    def _detect(self, size: int, header: bytes) -> Layout:
        if not any(header):
            raise RegionUnusedError(self._path, Refusal.UNKNOWN_LAYOUT, "no library has used it")
        try:
            return detect_layout(size, header)
        except DecodeError as error:
            raise self._refused(Refusal.UNKNOWN_LAYOUT, str(error)) from error

    def _read(self, start: int, size: int, *, at_least: int | None = None) -> bytes:
        """Return *size* bytes from *start*, or *at_least* so many if the file ends there."""
        try:
            found = os.pread(self._descriptor, size, start)
        except OSError as error:
            raise self._refused(Refusal.UNREADABLE, f"cannot be read: {error.strerror}") from error
        if len(found) < (size if at_least is None else at_least):
            raise self._refused(Refusal.TRUNCATED, f"ends at byte {start + len(found)}")
        return found

    def _map(self) -> tuple[int, mmap.mmap]:
        """Map the page of the two fields; return where in the file it begins, and the mapping."""
        first, last = sorted((self._layout.recent_kernel, self._layout.utilization_switch))
        start = first - first % mmap.ALLOCATIONGRANULARITY
        try:
            return start, mmap.mmap(self._descriptor, last + 4 - start, offset=start)
        except (OSError, ValueError) as error:
            raise self._refused(Refusal.TRUNCATED, f"cannot be mapped: {error}") from error

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


def _open(path: Path) -> int:
    """Return a descriptor of the regular file at *path*, open for reading and writing."""
    look = -1
    try:
        look = os.open(path, LOOK_FLAGS)
        mode = os.fstat(look).st_mode
        if not stat.S_ISREG(mode):
            detail = f"is not a regular file but {stat.filemode(mode)}"
            raise RegionRefusedError(path, Refusal.UNREADABLE, detail)
        return os.open(f"/proc/self/fd/{look}", OPEN_FLAGS)
    except OSError as error:
        raise RegionRefusedError(path, Refusal.UNREADABLE, f"cannot be opened: {error.strerror}") from error
    finally:
        if look >= 0:
            os.close(look)


@cache
def _scratch(size: int) -> memoryview:
    """Return the only buffer for the slots of regions of *size* bytes; each is summed before the next is read."""
    return memoryview(bytearray(size))
