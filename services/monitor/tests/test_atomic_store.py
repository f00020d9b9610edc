"""
Atomic stores into memory that may vanish.
"""

import ctypes
import errno
import mmap
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hami_monitor.adapters.atomic_store import VALUE_MAX, VALUE_MIN, store_int32

PAGE = mmap.PAGESIZE


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[tuple[Path, int]]:
    """Yield a file of two pages and the address of its second one."""
    path = tmp_path / "two-pages"
    path.write_bytes(b"\xa5" * (2 * PAGE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), PAGE, offset=PAGE) as memory:
        yield path, ctypes.addressof(ctypes.c_char.from_buffer(memory))


@pytest.mark.parametrize("value", [0, 1, 2, -1, VALUE_MIN, VALUE_MAX])
def test_value_arrives_in_the_file_and_nowhere_else(mapped: tuple[Path, int], value: int) -> None:
    """Four bytes change, in little-endian order."""
    path, address = mapped

    store_int32(address + 8, value)

    content = path.read_bytes()
    assert value.to_bytes(4, "little", signed=True) == content[PAGE + 8 : PAGE + 12]
    assert b"\xa5" * (2 * PAGE - 4) == content[: PAGE + 8] + content[PAGE + 12 :]


def test_store_past_the_end_of_a_shrunk_file_is_an_error(mapped: tuple[Path, int]) -> None:
    """A plain store would end the process; the file is not extended either."""
    path, address = mapped
    os.truncate(path, 100)

    with pytest.raises(OSError, match="Bad address") as caught:
        store_int32(address, 1)

    assert (errno.EFAULT, 100) == (caught.value.errno, path.stat().st_size)


@pytest.mark.parametrize("value", [VALUE_MIN - 1, VALUE_MAX + 1])
def test_value_the_operation_cannot_carry_is_refused(mapped: tuple[Path, int], value: int) -> None:
    """No bits are cut off."""
    with pytest.raises(ValueError, match=str(value)):
        store_int32(mapped[1], value)
