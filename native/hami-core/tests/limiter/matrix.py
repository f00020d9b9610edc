"""
The limiter's acceptance matrix: which cells there are, what is required of each, and the command that measures them.

Usage: `python -m limiter.matrix BUILD [--seconds 60] [--workers 2] [--write PAGE]`, with the folder above in
PYTHONPATH. Neighbours: `cells` runs one cell; `programs` are measured beside the matrix; `test_limiter` asserts some of
these in `make test`.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from limiter.cells import UNLIMITED, Cell, Share, Tenant, run

LIMITS = (5, 10, 25, 30, 50, 75, 90)
NEW = "always new"
KERNELS = {
    "20 µs": "busy_20",
    "1 ms": "busy_1000",
    "10 ms": "busy_10000",
    "100 ms": "busy_100000",
    "log-normal": "lognormal_1000_100",
    "phases": "phase_1000_{first}_10000",
    NEW: "busy_20",
}
"""`first` makes the second phase begin about twenty seconds after the start."""
NEW_KINDS = 2000
"""Kernels that the library does not know: so many of 20 to 2019 µs, loaded again for each turn through them."""
FIRST_PHASE_LAUNCHES = 200
"""For each percent of the limit: twenty seconds of kernels of 1 ms."""
GRAPH = 4
SWITCHED = 2000 / 2100
"""The busy part of a device that contexts share in slices of 2 ms, with 0.1 ms to switch
(tests/fake_driver/time/schedule.h)."""
TOLERANCE = 2.0
FULL = 93.0
"""A device that is busy for this percentage has no more to give; the rest is lost in switches."""
NEAR_TURNS = 0.9
SETTLED_SECOND, LATE_SECOND = 7, 10
"""The second by which a limit must be found, and the second from which seconds are compared beside other containers."""
SETTLED_TOLERANCE = 10.0
EARLY_TOLERANCE = 4.0
EARLY_WINDOW_MS = 166
"""With NVML windows this short a limit is found within two seconds, except for LONG kernels."""
LONG = ("100 ms",)
"""Kernels of which the first one, launched before any cost is known, may exceed two seconds of a limit."""
SHORT = ("20 µs", "1 ms", "10 ms", "log-normal")
"""Kernels of which many fit into a second, so that every second can be compared with the limit."""


@dataclass(frozen=True)
class Form:
    """How a container launches."""

    processes: int = 1
    streams: int = 1
    graph: int = 0


PLAIN = Form()
FULL_FORM = Form(4, 8)
FORMS = (PLAIN, Form(processes=4), Form(streams=8), FULL_FORM, Form(graph=GRAPH), Form(4, 8, GRAPH))
ALONE = ((PLAIN, 166), (PLAIN, None), *((form, 166) for form in FORMS[1:5]), (FULL_FORM, None), (FORMS[5], None))
BESIDE_UNLIMITED = ((PLAIN, 166), (PLAIN, 1000), (FULL_FORM, 1000))
BESIDE_LIMITED = (*((form, 166) for form in FORMS), (PLAIN, 1000), (FULL_FORM, 1000), (PLAIN, None))
"""Which ways to launch are run with which windows of NVML, for every kernel and limit."""


@dataclass(frozen=True)
class Row:
    """A cell and its place in the page."""

    neighbour: str
    kernel: str
    limit: int
    form: Form
    cell: Cell


@dataclass(frozen=True)
class Outcome:
    """A row and its measurements, in the order of its tenants."""

    row: Row
    shares: list[Share]

    @property
    def error(self) -> float:
        """Points between the mean and what the first container should get."""
        return self.shares[0].mean() - expected(self.row)

    @property
    def excess(self) -> float:
        """Points by which the worst second after two exceeded the limit."""
        return max(self.shares[0].seconds[2:]) - self.row.limit

    @property
    def early(self) -> float:
        """Points between the mean of the third to the seventh second and what the first container should get."""
        return self.shares[0].mean(2, SETTLED_SECOND) - expected(self.row)

    @property
    def late_excess(self) -> float:
        """Points by which the worst second after ten exceeded the limit."""
        return max(self.shares[0].seconds[LATE_SECOND:]) - self.row.limit

    @property
    def unfairness(self) -> float:
        """The largest deviation of a process from an equal part, as a fraction of that part."""
        return max(
            abs(one * len(share.processes) / sum(share.processes) - 1)
            for share in self.shares
            for one in share.processes
        )

    def failures(self) -> list[str]:
        """Return the requirements that are missed, in words."""
        found = []
        if not least(self.row) <= self.error <= TOLERANCE:
            found.append(f"mean {self.shares[0].mean():.1f}, expected {expected(self.row):.1f}")
        if self.row.cell.window_ms == EARLY_WINDOW_MS and self.row.kernel not in LONG:
            found += self._early_failures()
        if self.row.neighbour == "30 beside 70" and self.row.cell.window_ms is not None:
            found += self._neighbour_failures()
        if self.row.neighbour == "alone" and self.row.kernel in SHORT and self.excess > SETTLED_TOLERANCE:
            found.append(f"{self.excess:.1f} points above the limit in a second")
        return found

    def _early_failures(self) -> list[str]:
        least_early = least(self.row) + TOLERANCE - EARLY_TOLERANCE
        if least_early <= self.early <= EARLY_TOLERANCE:
            return []
        return [f"{self.early:+.1f} points from the third to the seventh second"]

    def _neighbour_failures(self) -> list[str]:
        mean, total = self.shares[1].mean(), sum(share.mean() for share in self.shares)
        if abs(mean - 70) <= TOLERANCE or (mean < 70 and total >= FULL):
            return []
        return [f"neighbour's mean {mean:.1f}, expected 70"]


def turns(row: Row) -> float:
    """Return the percentage that the first container gets beside an unlimited one if both always have work."""
    mine, other = (tenant.processes for tenant in row.cell.tenants)
    return 100 * SWITCHED * mine / (mine + other)


def expected(row: Row) -> float:
    """Return the percentage that the first container should get: its limit, or its slices if those are less."""
    return min(row.limit, turns(row)) if row.neighbour == "beside an unlimited one" else row.limit


def least(row: Row) -> float:
    """
    Return the error below which a cell fails.

    A limit close to a container's slices is not quite reached: while the container waits, it has no work for its
    slices. Without NVML, what the device does between slices counts as the container's: switches between its processes,
    and other containers' work.
    """
    if row.neighbour == "beside an unlimited one":
        return min(0.0, NEAR_TURNS * turns(row) - expected(row)) - TOLERANCE
    if row.cell.window_ms is not None:
        return -TOLERANCE
    if row.neighbour != "alone":
        return -row.limit
    return -TOLERANCE if row.form.processes == 1 else row.limit * (SWITCHED - 1) - TOLERANCE


def a_tenant(limit: int, kernel: str, form: Form) -> Tenant:
    """Return a container that launches a kernel of the page without pause."""
    first = FIRST_PHASE_LAUNCHES * min(limit, 50) // form.processes
    tenant = Tenant(limit, KERNELS[kernel].format(first=first), form.processes, form.streams, form.graph)
    return replace(tenant, kinds=NEW_KINDS, reload=1) if kernel == NEW else tenant


def rows() -> Iterator[Row]:
    """Return every row of the matrix."""
    for kernel in KERNELS:
        for limit in LIMITS:
            yield from _alone(kernel, limit)
            yield from _beside_unlimited(kernel, limit)
        yield from _beside_limited(kernel)


def _alone(kernel: str, limit: int) -> Iterator[Row]:
    for form, window_ms in ALONE:
        yield Row("alone", kernel, limit, form, Cell((a_tenant(limit, kernel, form),), window_ms))


def _beside_unlimited(kernel: str, limit: int) -> Iterator[Row]:
    for form, window_ms in BESIDE_UNLIMITED:
        tenants = (a_tenant(limit, kernel, form), a_tenant(UNLIMITED, kernel, PLAIN))
        yield Row("beside an unlimited one", kernel, limit, form, Cell(tenants, window_ms))


def _beside_limited(kernel: str) -> Iterator[Row]:
    for form, window_ms in BESIDE_LIMITED:
        tenants = (a_tenant(30, kernel, form), a_tenant(70, kernel, form))
        yield Row("30 beside 70", kernel, 30, form, Cell(tenants, window_ms))


def name(row: Row) -> str:
    """Return a row's name."""
    form = row.form
    parts = [row.neighbour, f"limit {row.limit}", row.kernel, f"{form.processes} processes", f"{form.streams} streams"]
    parts += ["graph"] if form.graph else []
    return ", ".join([*parts, f"NVML {row.cell.window_ms or 'off'}"])


def measure(build: Path, seconds: int, workers: int) -> list[Outcome]:
    """Run every row and print the progress."""
    chosen, began = list(rows()), time.monotonic()
    outcomes = []
    with ThreadPoolExecutor(workers) as pool:
        for outcome in pool.map(lambda row: Outcome(row, run(row.cell, build, seconds)), chosen):
            outcomes.append(outcome)
            for failure in outcome.failures():
                sys.stdout.write(f"{name(outcome.row)}: {failure}\n")
            if len(outcomes) % 25 == 0:
                sys.stdout.write(f"{len(outcomes)} of {len(chosen)} after {time.monotonic() - began:.0f} s\n")
            sys.stdout.flush()
    return outcomes


def main() -> None:
    """Measure, write the page if one is named, and fail if a requirement is missed."""
    from limiter.page import page
    from limiter.programs import measure_programs

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=Path, help="folder with libvgpu.so and the fake driver")
    parser.add_argument("--seconds", type=int, default=60, help="virtual seconds measured in each cell")
    parser.add_argument("--workers", type=int, default=2, help="cells run at once")
    parser.add_argument("--write", type=Path, help="page to write")
    options = parser.parse_args()
    build, seconds = options.build.resolve(), options.seconds
    outcomes, measured = measure(build, seconds, options.workers), measure_programs(build, seconds)
    missed = [failure for outcome in outcomes for failure in outcome.failures()] + measured.failures()
    if options.write:
        options.write.write_text(page(outcomes, measured, seconds, build))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
