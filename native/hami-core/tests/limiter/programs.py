"""
Programs of certain kinds under a limit: what waits, is waited for, or seldom wants the device.

Owns which programs there are and what is required of each. Neighbours: `cells` runs them, `page` shows them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from limiter.cells import SETTLING_SECONDS, UNLIMITED, Cell, Share, Tenant, run
from limiter.matrix import NEW_KINDS

LIMITS = (10, 50)
WINDOWS_MS = (166, None)
TOLERANCE = 2.0
"""Points between a program's share and its limit."""
SLOW_SECONDS = 20
"""How long a slow call of the driver takes."""
SLOW_CALL = 2000
"""Which call of its function is slow: one after settling."""
SLOW_SYMBOLS = ("cuEventQuery", "cuEventRecord", "cuEventElapsedTime", "cuLaunchKernel")
REQUESTS = (("5 kernels of 1 ms", 1000, 5), ("50 kernels of 0.1 ms", 100, 50), ("1 kernel of 20 ms", 20000, 1))
"""What a request of the small load is: its name, the length of its kernels in microseconds, and how many they are."""
PAUSES = 19
"""A twentieth of the time is work."""


FIRST_LIMITS = (5, 10, 20, 50, 90)
FIRST_SECONDS = 20
"""The virtual seconds in which three passes end at every limit."""
LONGER = 1.5
"""How much longer the first pass over some kernels may take than the next."""
FIRST_USES = {
    "400 kernels, each followed by 2 known ones": Tenant(0, "busy_30", kinds=400, spread=41, known=2, passes=1),
    "400 kernels, each three times": Tenant(0, "busy_30", kinds=400, spread=41, burst=3, passes=1),
    "400 kernels of up to 0.4 ms": Tenant(0, "busy_30", kinds=400, passes=1),
    "400 graphs of 4": Tenant(0, "busy_30", kinds=400, spread=41, graph=4, passes=1),
    "400 kernels on 8 streams": Tenant(0, "busy_30", kinds=400, spread=41, known=2, streams=8, passes=1),
    "400 kernels of each of 2 processes": Tenant(0, "busy_30", kinds=400, spread=41, known=2, processes=2, passes=1),
}
"""Programs that launch kernels of 30 to 70 µs, or another length they name, in passes."""


@dataclass(frozen=True)
class FirstUse:
    """How long passes over some kernels took: the first, the slower of the next two, and one without a limit."""

    title: str
    limit: int
    free_ms: float
    first_ms: float
    next_ms: float

    def failures(self) -> list[str]:
        """Return what is missed, in words."""
        missed = self.first_ms > LONGER * self.next_ms
        return [f"{self.title}, limit {self.limit}: {self.first_ms:.0f}, then {self.next_ms:.0f} ms"] if missed else []


@dataclass(frozen=True)
class Program:
    """A program under a limit."""

    title: str
    limit: int
    cell: Cell
    kernel_ms: float = 0
    """The length of the kernels by whose number its share is measured; 0 measures how long the device is busy."""

    def share(self, share: Share) -> float:
        """Return the percentage of the time that the limited kernels take after settling."""
        if not self.kernel_ms:
            return share.mean()
        launched = share.launched[SETTLING_SECONDS:]
        return sum(launched) / len(launched) * self.kernel_ms / 10


@dataclass(frozen=True)
class Held:
    """How much of the device a program got."""

    program: Program
    shares: tuple[float, ...]
    """One of each container."""

    @property
    def error(self) -> float:
        """The largest deviation from the limit, in points."""
        return max((share - self.program.limit for share in self.shares), key=abs)

    def failures(self) -> list[str]:
        """Return what is missed, in words."""
        missed = abs(self.error) > TOLERANCE
        return [f"{self.program.title}, limit {self.program.limit}: {self.error:+.1f} points"] if missed else []


@dataclass(frozen=True)
class Answered:
    """How long the slowest hundredth of the requests of a small load took at least, without and with a limit."""

    title: str
    limit: int
    window_ms: int | None
    kernel_ms: float
    free_ms: float
    held_ms: float

    def failures(self) -> list[str]:
        """Return what is missed, in words: at most one kernel may be added."""
        added = self.held_ms - self.free_ms
        missed = added > self.kernel_ms
        return [f"requests of {self.title}, limit {self.limit}: {added:.2f} ms later"] if missed else []


@dataclass(frozen=True)
class Measured:
    """What was measured of all programs."""

    held: tuple[Held, ...]
    answered: tuple[Answered, ...]
    first: tuple[FirstUse, ...]

    def failures(self) -> list[str]:
        """Return what is missed, in words."""
        held = [failure for one in self.held for failure in one.failures()]
        first = [failure for one in self.first for failure in one.failures()]
        return held + [failure for one in self.answered for failure in one.failures()] + first


def measure_programs(build: Path, seconds: int) -> Measured:
    """Run every program for some virtual seconds after settling."""
    held = tuple(measure_share(program, build, seconds) for program in programs())
    first = tuple(measure_first_use(title, limit, build) for title in FIRST_USES for limit in FIRST_LIMITS)
    return Measured(held, tuple(measure_requests(build, seconds)), first)


def programs() -> Iterator[Program]:
    """Return every program whose share is measured."""
    for window_ms in WINDOWS_MS:
        for limit in LIMITS:
            yield from _alone(limit, window_ms)
        for own, other in ((50, 50), (10, 50)):
            ranks = (Tenant(own, "busy_1000", rank=1), Tenant(other, "busy_1000", rank=2, device=1))
            yield Program(f"two ranks of {own} and {other} that wait for each other", own, Cell(ranks, window_ms))


def _alone(limit: int, window_ms: int | None) -> Iterator[Program]:
    beside = Tenant(limit, "busy_1000@10", persistent=1)
    yield Program("kernels beside one that does not end", limit, Cell((beside,), window_ms), 1)
    yield Program("grids for 188 SMs", limit, Cell((Tenant(limit, "busy_1000", sms=188),), window_ms))
    new = Tenant(limit, "busy_20", kinds=NEW_KINDS, sms=188, reload=1)
    yield Program("new kernels and grids for 188 SMs", limit, Cell((new,), window_ms))
    yield Program("a host function of 0.2 ms", limit, Cell((Tenant(limit, "busy_1000", host_us=200),), window_ms))
    for symbol in SLOW_SYMBOLS:
        fault = f"{symbol}:{SLOW_CALL}:SLEEP_{SLOW_SECONDS}000"
        slow = Tenant(limit, "busy_1000", streams=2, threads=2, faults=fault)
        yield Program(f"{symbol} takes {SLOW_SECONDS} s once", limit, Cell((slow,), window_ms))


def measure_share(program: Program, build: Path, seconds: int) -> Held:
    """Run a program for some virtual seconds after settling."""
    return Held(program, tuple(program.share(share) for share in run(program.cell, build, seconds)))


def measure_first_use(title: str, limit: int, build: Path) -> FirstUse:
    """Run a program of FIRST_USES without and with a limit."""
    (free_ms, *_), (first_ms, *next_ms) = (
        _slowest_passes_ms(replace(FIRST_USES[title], limit=percent), build) for percent in (UNLIMITED, limit)
    )
    return FirstUse(title, limit, free_ms, first_ms, max(next_ms))


def _slowest_passes_ms(tenant: Tenant, build: Path) -> list[float]:
    """Return how long the first three passes took in the slowest process."""
    (share,) = run(Cell((tenant,)), build, FIRST_SECONDS)
    passes = [each[:3] for each in share.passes_ms]
    return [max(each) for each in zip(*passes, strict=True)]


def measure_requests(build: Path, seconds: int) -> Iterator[Answered]:
    """Run the small loads with and without limits."""
    for title, kernel_us, count in REQUESTS:
        for window_ms in WINDOWS_MS:
            free, *held = (
                _p99_ms(_small_load(limit, kernel_us, count), window_ms, build, seconds)
                for limit in (UNLIMITED, *LIMITS)
            )
            for limit, held_ms in zip(LIMITS, held, strict=True):
                yield Answered(title, limit, window_ms, kernel_us / 1000, free, held_ms)


def _small_load(limit: int, kernel_us: int, count: int) -> Tenant:
    return Tenant(limit, f"busy_{kernel_us}", burst=count, pause_us=PAUSES * kernel_us * count)


def _p99_ms(tenant: Tenant, window_ms: int | None, build: Path, seconds: int) -> float:
    """Return what 99 of 100 requests take at most after settling; they come at even distances."""
    (share,) = run(Cell((tenant,), window_ms), build, seconds)
    settled = len(share.latencies_ms) * SETTLING_SECONDS // (SETTLING_SECONDS + seconds)
    latencies = sorted(share.latencies_ms[settled:])
    return latencies[math.ceil(0.99 * len(latencies)) - 1]
