"""
Write the results of the acceptance matrix as a page of documentation.

Owns the words and tables of docs/limiter.md. Neighbours: `matrix` measures and judges.
"""

import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path

from limiter.cells import SETTLING_SECONDS, Cell, Tenant, run
from limiter.matrix import (
    ALONE,
    BESIDE_LIMITED,
    BESIDE_UNLIMITED,
    EARLY_TOLERANCE,
    EARLY_WINDOW_MS,
    FORMS,
    FULL,
    KERNELS,
    LIMITS,
    NEW_KINDS,
    SHORT,
    TOLERANCE,
    Form,
    Outcome,
    name,
)
from limiter.programs import Measured
from limiter.programs_page import (
    FIRST_NOTE,
    PROGRAMS_NOTE,
    REQUESTS_NOTE,
    first_use_table,
    programs_table,
    requests_table,
)
from limiter.tables import table

BELOW = (
    ("1 ms every 3 ms", "busy_1000", 2000),
    ("20 µs every 50 µs", "busy_20", 30),
    ("10 ms every 20 ms", "busy_10000", 10000),
)
"""Programs that need less than their share: a kernel, and the pause after each."""
BELOW_LIMIT = 75
WIDTH = 140
NEIGHBOURS = ("alone", "beside an unlimited one", "30 beside 70")

HEAD = """# How well the SM limiter holds

This page is written by a command and not by hand:

<!-- not run: it measures for minutes, and writes this page -->
```sh
tox -e limiter
```

Each cell of the matrix is a device of the fake driver on which containers launch kernels without pause, for
{seconds} virtual seconds after {settling}. The driver runs contexts in slices of 2 ms and needs 0.1 ms to switch. It
knows exactly for which process it was busy, and reports NVML's windows late and in whole percent. The limit is on the
time that the device is busy with the container. An error is the difference of the mean from the limit, in points. The
tables show the worst of all ways to launch: {forms}; with NVML windows of 166 ms and 1 s and without NVML.

{verdict}
"""
COVERAGE = """
## Which cells there are

Alone, every kernel is run with every limit in every way to launch. Beside an unlimited container it is run in the
simplest and the most concurrent way. 30 beside 70 is run in all ways. Not each of these is run with each window of
NVML, because a container that is alone hardly depends on it: {alone} alone; {unlimited} beside an unlimited one;
{limited} of 30 beside 70. The kernels: `log-normal` has a median of 1 ms and σ 1; `phases` takes 1 ms and, after about
twenty seconds, 10 ms; `always new` are {new} kernels of 20 to {longest} µs, which are loaded again for each turn
through them, so that the library knows none. What a launch costs its thread is in
[hami-core-bench.md](hami-core-bench.md).
"""
FULL_NOTE = f"""
A device that two containers keep busy loses up to 5 % when it switches. Then 30 + 70 do not fit: the smaller share is
served first, and the larger one gets the rest. Where a device was busy for {FULL:.0f} % of the time, no more is
required.
"""
BLIND_NOTE = """
Without NVML nothing distinguishes a container's own work from what another one did in between. An event has the time
at which the device reached it. A kernel of 10 ms that is interrupted ten times for 1 ms, and one of 20 ms that is not
interrupted, give the same two times. A limiter that corrects the first case would grant twice the limit in the second.
So a container is charged for all of it. It gets less than its limit, never more, and at least the limit's part of its
slices: half of it beside one other process. Alone it is also charged for the switches between its own processes.
"""
EARLY_NOTE = f"""
The mean of the third to the seventh second, in points from the expected value, the worst of all cells. With NVML's
windows of 166 ms:

{{quick}}

Of these, {EARLY_TOLERANCE:.0f} points are allowed, except for kernels of 100 ms. What a container was charged too
much before NVML reported is given back, and appears here as more than its limit. Processes that all begin with long
kernels owe for those first: four graphs of four kernels of 100 ms are 1.6 s of the device, which a limit of 30 earns
in 5.3 s, and one of 5 in half a minute.

With windows of 1 s, NVML reports the first one in the second second, and its length is known in the third. Until then
a container beside others gets what it gets without NVML:

{{slow}}
"""
FAIR_NOTE = """
The processes of a container that always want the device take turns. One at a time launches, until it is 10 ms of GPU
time and one launch ahead of another that waits. Beside other containers all but those ahead launch. The table shows
how far a process was from an equal part, the worst of all cells with four processes, and how long a launch took at
most.
"""
BESIDE_NOTE = """
A limit above a container's slices (half of the device beside one other process, minus the switches) is compared with
the slices. A limit just below them is not quite reached: while the container waits for its bucket, it has no work for
its slices.
"""


def page(outcomes: list[Outcome], measured: Measured, seconds: int, build: Path) -> str:
    """Return the page for the results."""
    programs = len(measured.held) + len(measured.answered) + len(measured.first)
    failed = [f"- {name(outcome.row)}: {what}" for outcome in outcomes for what in outcome.failures()]
    missed = measured.failures()
    verdict = (
        f"Of {len(outcomes)} cells {len(failed)} miss the requirement: a mean within {TOLERANCE:.0f} points, with the "
        f"exceptions in the notes below. Of {programs} programs of certain kinds {len(missed)} miss theirs."
    )
    failed += [f"- {what}" for what in missed]
    sections = [
        HEAD.format(
            seconds=seconds,
            settling=SETTLING_SECONDS,
            forms=_forms(),
            verdict="\n".join([verdict, *([""] if failed else []), *failed]),
        ),
        "## Alone\n",
        _by_limit(outcomes, "alone", lambda outcome: True),
        "\n## Beside an unlimited container\n",
        _by_limit(outcomes, "beside an unlimited one", lambda outcome: outcome.row.cell.window_ms is not None),
        BESIDE_NOTE,
        "\n## 30 beside 70\n",
        _pairs(outcomes, has_nvml=True),
        FULL_NOTE,
        "\n## Beside others, without NVML\n",
        BLIND_NOTE,
        _pairs(outcomes, has_nvml=False),
        "\n## Seconds above the limit\n",
        _seconds(outcomes),
        "\n## From the third second on\n",
        EARLY_NOTE.format(quick=_early(outcomes, EARLY_WINDOW_MS), slow=_early(outcomes, 1000)),
        "\n## Processes of one container\n",
        FAIR_NOTE,
        _fairness(outcomes),
        "\n## Below the limit\n",
        _below(build, seconds),
        "\n## Programs that wait, or are waited for\n",
        PROGRAMS_NOTE,
        programs_table(measured.held),
        "\n## First use of kernels\n",
        FIRST_NOTE,
        first_use_table(measured.first),
        "\n## A small load of requests\n",
        REQUESTS_NOTE,
        requests_table(measured.answered),
        COVERAGE.format(
            alone=_met(ALONE),
            unlimited=_met(BESIDE_UNLIMITED),
            limited=_met(BESIDE_LIMITED),
            new=NEW_KINDS,
            longest=NEW_KINDS + 19,
        ),
    ]
    return "\n\n".join(_filled(section.strip("\n")) for section in sections) + "\n"


def _filled(section: str) -> str:
    """Wrap the lines of everything but headings, lists, tables and code."""
    paragraphs = section.split("\n\n")
    return "\n\n".join(
        paragraph
        if paragraph.startswith(("#", "-", "|", "`", "<"))
        else textwrap.fill(" ".join(paragraph.split()), WIDTH)
        for paragraph in paragraphs
    )


def _forms() -> str:
    return "; ".join(_form(form) for form in FORMS)


def _form(form: Form) -> str:
    processes = "1 process" if form.processes == 1 else f"{form.processes} processes"
    streams = "1 stream" if form.streams == 1 else f"{form.streams} streams"
    return f"{processes}, {streams}" + (f", graphs of {form.graph}" if form.graph else "")


def _met(pairs: Iterable[tuple[Form, int | None]]) -> str:
    """Return how many ways to launch are run with each window."""
    windows = [window_ms for _, window_ms in pairs]
    return ", ".join(
        f"{windows.count(window_ms)} with {f'{window_ms} ms' if window_ms else 'no NVML'}"
        for window_ms in dict.fromkeys(windows)
    )


def _worst(outcomes: Iterable[Outcome]) -> str:
    errors = [outcome.error for outcome in outcomes]
    return f"{max(errors, key=abs):+.1f}" if errors else ""


def _by_limit(outcomes: list[Outcome], neighbour: str, is_shown: Callable[[Outcome], bool]) -> str:
    shown = [outcome for outcome in outcomes if outcome.row.neighbour == neighbour and is_shown(outcome)]
    return table(
        ["kernel", *(f"limit {limit}" for limit in LIMITS)],
        (
            [
                kernel,
                *(
                    _worst(one for one in shown if (one.row.kernel, one.row.limit) == (kernel, limit))
                    for limit in LIMITS
                ),
            ]
            for kernel in KERNELS
        ),
    )


def _pairs(outcomes: list[Outcome], has_nvml: bool) -> str:
    """Return what two limited containers got beside each other."""
    shown = [
        one
        for one in outcomes
        if one.row.neighbour == "30 beside 70" and (one.row.cell.window_ms is not None) == has_nvml
    ]

    def means(kernel: str, tenant: int) -> str:
        found = [one.shares[tenant].mean() for one in shown if one.row.kernel == kernel]
        return " to ".join(dict.fromkeys((f"{min(found):.1f}", f"{max(found):.1f}")))

    return table(
        ["kernel", "mean of 30", "mean of 70"], ([kernel, means(kernel, 0), means(kernel, 1)] for kernel in KERNELS)
    )


def _by_neighbour(
    outcomes: list[Outcome],
    kernels: Iterable[str],
    measure: Callable[[Outcome], float],
    is_shown: Callable[[Outcome], bool],
    size: Callable[[float], float] = abs,
) -> str:
    """Return the largest value of a measure, by *size*, for each kernel and kind of neighbour."""

    def worst(kernel: str, neighbour: str) -> str:
        found = [
            measure(one)
            for one in outcomes
            if (one.row.kernel, one.row.neighbour) == (kernel, neighbour) and is_shown(one)
        ]
        return f"{max(found, key=size):+.1f}" if found else ""

    return table(
        ["kernel", *NEIGHBOURS],
        ([kernel, *(worst(kernel, neighbour) for neighbour in NEIGHBOURS)] for kernel in kernels),
    )


def _early(outcomes: list[Outcome], window_ms: int) -> str:
    return _by_neighbour(outcomes, KERNELS, lambda one: one.early, lambda one: one.row.cell.window_ms == window_ms)


def _seconds(outcomes: list[Outcome]) -> str:
    after_two = _by_neighbour(outcomes, SHORT, lambda one: one.excess, lambda one: True, float)
    after_ten = _by_neighbour(outcomes, SHORT, lambda one: one.late_excess, lambda one: True, float)
    return (
        "The worst second after the first two, in points above the limit, of all cells with short kernels:\n\n"
        f"{after_two}\n\nThe same after the first ten:\n\n{after_ten}"
    )


def _fairness(outcomes: list[Outcome]) -> str:
    shown = [one for one in outcomes if one.row.form.processes > 1]

    def cells(kernel: str) -> list[Outcome]:
        return [one for one in shown if one.row.kernel == kernel]

    rows = (
        [
            kernel,
            f"{100 * max(one.unfairness for one in cells(kernel)):.0f} %",
            f"{max(share.longest_ms for one in cells(kernel) for share in one.shares) / 1000:.1f} s",
        ]
        for kernel in KERNELS
    )
    return table(["kernel", "distance from an equal part", "longest launch"], rows)


def _below(build: Path, seconds: int) -> str:
    rows = []
    for title, kernel, pause_us in BELOW:
        bare, limited = (
            run(Cell((Tenant(BELOW_LIMIT, kernel, pause_us=pause_us),), has_library=library), build, seconds)[
                0
            ].launches
            for library in (False, True)
        )
        rows.append([title, str(bare), str(limited), f"{100 * limited / bare:.2f} %"])
    intro = f"Programs that need less than their {BELOW_LIMIT} % launch as often as without the library:\n\n"
    return intro + table(["program", "launches without", "launches with", ""], rows)
