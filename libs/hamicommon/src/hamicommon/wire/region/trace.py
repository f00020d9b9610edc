"""
The trace of launches, `<region>.trace-1`, which the library keeps beside the region at `LIBCUDA_LOG_LEVEL` 4.

A ring of the last 4096 entries of all processes of a container: what each launch paid and waited for, and what launches
cost between two timing events. Any content is valid, because a container can write it.
Neighbours: `records` has the reasons for waits. `src/time/trace.h` of the library has the same places.
"""

import struct
from dataclasses import dataclass
from typing import Final

from hamicommon.wire.errors import DecodeError
from hamicommon.wire.region.records import WAIT_REASONS

SUFFIX: Final = ".trace-1"
TRACE_MAGIC: Final = int.from_bytes(b"HTRACE-1", "little")
ENTRIES: Final = 4096
_HEADER_BYTES: Final = 64
_ENTRY: Final = struct.Struct("<4QiHHQ4I")
TRACE_BYTES: Final = _HEADER_BYTES + ENTRIES * _ENTRY.size
_LAUNCHES: Final = {1: "estimate", 2: "advance", 3: "untimed"}
"""How a launch paid, by the number of its type."""
_INTERVAL: Final = 4


@dataclass(frozen=True, slots=True)
class TracedLaunch:
    """A launch that started."""

    number: int
    """The entries of all processes are numbered together, from 1."""
    at_nanoseconds: int
    """The Node's monotonic clock."""
    pid: int
    """In the container."""
    device: int
    """Its index in the region."""
    kind: int
    """The same for launches that are expected to cost the same: function, block size and magnitude of the grid."""
    stream: int
    paid: str
    """
    How it paid.

    estimate: what its kind is known to cost; advance: its kind was unknown; untimed: its estimate, because another
    thread was in a slow call of the driver.
    """
    paid_nanoseconds: int
    waited_microseconds: tuple[tuple[str, int], ...]
    """Reasons, of `WAIT_REASONS`, and times; empty if it did not wait."""


@dataclass(frozen=True, slots=True)
class TracedInterval:
    """What launches of a stream cost between two timing events."""

    number: int
    at_nanoseconds: int
    """When it was known."""
    pid: int
    device: int
    kind: int
    """0 if it is of several launches."""
    launches: int
    paid_nanoseconds: int
    """What they had paid before, in whole microseconds."""
    cost_nanoseconds: int


Traced = TracedLaunch | TracedInterval


def decode_trace(data: bytes) -> tuple[Traced, ...]:
    """
    Return the entries of a trace in their order; those that are being written are left out.

    Raises: DecodeError when *data* is too short or does not begin as a trace.
    """
    if len(data) < TRACE_BYTES:
        raise DecodeError("size", f"{len(data)} bytes are too few for a trace, which has {TRACE_BYTES}")
    if int.from_bytes(data[:8], "little") != TRACE_MAGIC:
        raise DecodeError("byte 0", "no trace")
    entries = (_entry(*row) for row in _ENTRY.iter_unpack(data[_HEADER_BYTES:TRACE_BYTES]))
    return tuple(sorted((entry for entry in entries if entry), key=lambda entry: entry.number))


def _entry(
    number: int, at_ns: int, kind: int, stream: int, pid: int, device: int, type_: int, paid_ns: int, *rest: int
) -> Traced | None:
    *waited, estimate_us = rest
    if number and type_ in _LAUNCHES:
        reasons = tuple((reason, us) for reason, us in zip(WAIT_REASONS, waited, strict=False) if us)
        return TracedLaunch(number, at_ns, pid, device, kind, stream, _LAUNCHES[type_], paid_ns, reasons)
    if number and type_ == _INTERVAL:
        return TracedInterval(number, at_ns, pid, device, kind, waited[1], estimate_us * 1000, paid_ns)
    return None
