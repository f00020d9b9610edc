"""
How much one input may cost.

Both bounds are many times what the costliest of the seeds takes while its coverage is recorded, and far below what a
service has.
"""

from collections.abc import Callable
from resource import RUSAGE_SELF, getrusage
from time import process_time
from typing import Final

SECONDS_MAX: Final = 2.0
"""Of this process's time on a CPU."""
MIB_MAX: Final = 128
"""By which the process may grow beyond what it has needed so far."""

Check = Callable[[bytes], None]


class BoundError(Exception):
    """An input takes too long, or too much memory."""


def bounded(check: Check) -> Check:
    """Return *check* with the bounds; it raises BoundError beyond them."""

    def one(data: bytes) -> None:
        most, began = _most_mib(), process_time()
        check(data)
        seconds, mib = process_time() - began, _most_mib() - most
        if seconds > SECONDS_MAX:
            raise BoundError(f"{len(data)} bytes take {seconds:.1f} s, more than {SECONDS_MAX:g}")
        if mib > MIB_MAX:
            raise BoundError(f"{len(data)} bytes take {mib} MiB, more than {MIB_MAX}")

    return one


def _most_mib() -> int:
    return getrusage(RUSAGE_SELF).ru_maxrss // 1024
