"""
The trace of launches, as the library writes it.
"""

import struct

import pytest

from hamicommon.wire.errors import DecodeError
from hamicommon.wire.region.trace import (
    ENTRIES,
    TRACE_BYTES,
    TRACE_MAGIC,
    TracedInterval,
    TracedLaunch,
    decode_trace,
)

LAUNCH = struct.pack("<4QiHHQ4I", 2, 5000, 0xABC, 0xDEF, 12, 1, 2, 10_000_000, 7, 0, 3, 0)
INTERVAL = struct.pack("<4QiHHQ4I", 1, 4000, 0, 0, 13, 0, 4, 900, 0, 17, 0, 2)


def a_trace(*entries: bytes) -> bytes:
    """Return a file with these entries."""
    return (struct.pack("<Q", TRACE_MAGIC).ljust(64, b"\0") + b"".join(entries)).ljust(TRACE_BYTES, b"\0")


def test_entries_are_in_the_order_of_their_numbers() -> None:
    """The ring begins anywhere. A launch has the reasons for which it waited."""
    launch = TracedLaunch(2, 5000, 12, 1, 0xABC, 0xDEF, "advance", 10_000_000, (("share", 7), ("cost", 3)))
    interval = TracedInterval(1, 4000, 13, 0, 0, 17, 2000, 900)

    assert (interval, launch) == decode_trace(a_trace(LAUNCH, INTERVAL))


def test_whatever_a_container_wrote_is_read_or_left_out() -> None:
    """Entries that are being written have the number 0, and unknown types are ignored."""
    unfinished, unknown = struct.pack("<Q", 0) + LAUNCH[8:], b"\xff" * 64

    assert () == decode_trace(a_trace(unfinished, unknown))
    assert ENTRIES == len(decode_trace(a_trace(*(LAUNCH,) * ENTRIES)))


@pytest.mark.parametrize("data", [b"", b"x" * (TRACE_BYTES - 1), b"x" * TRACE_BYTES])
def test_other_files_are_no_trace(data: bytes) -> None:
    """Too short, or without the mark."""
    with pytest.raises(DecodeError):
        decode_trace(data)
