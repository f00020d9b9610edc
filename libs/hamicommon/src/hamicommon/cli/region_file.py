"""
Read a region file that the command line names, or the trace beside it.
"""

import sys
from pathlib import Path
from typing import BinaryIO, Final

from hamicommon.wire.errors import DecodeError, quote
from hamicommon.wire.region.codec import Region, decode_region
from hamicommon.wire.region.trace import SUFFIX, TRACE_BYTES, Traced, decode_trace

_MAX_REGION_BYTES: Final = 64 * 1024 * 1024
"""More than any region, so that an endless device file does not fill the memory."""


def read_region(path: str) -> Region:
    """Return the region in the file at *path*; `-` is standard input."""
    return decode_region(_bytes_of(path))


def read_trace(path: str) -> tuple[Traced, ...]:
    """Return the trace beside the region file at *path*; `-` is a trace on standard input."""
    return decode_trace(_bytes_of(path if path == "-" else path + SUFFIX)[:TRACE_BYTES])


def _bytes_of(path: str) -> bytes:
    try:
        if path == "-":
            return _bounded(sys.stdin.buffer, "standard input")
        with Path(path).open("rb") as file:
            return _bounded(file, quote(path))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise DecodeError(quote(path), f"cannot be read: {reason}") from None


def _bounded(file: BinaryIO, name: str) -> bytes:
    data = file.read(_MAX_REGION_BYTES + 1)
    if len(data) > _MAX_REGION_BYTES:
        raise DecodeError(name, f"is longer than {_MAX_REGION_BYTES} bytes, so it is no region")
    return data
