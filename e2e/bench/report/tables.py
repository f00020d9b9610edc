"""
The figures of many runs as Markdown tables, aligned as text.

Owns the layout of the tables. Each cell is the median of the rounds of a case. Neighbours: `record.measurement` defines
the figures.
"""

import os
import platform
import statistics
from collections.abc import Callable, Mapping, Sequence

from bench.load.handover import Handover
from bench.record.measurement import Load, Run

BEGIN = "<!-- measured: {command} writes what follows -->"
END = "<!-- end of what was measured -->"
_RUNS_A_ROUND = 2
"""The runs of each compared case in a round, with each load."""
_PARTS = ("p50", "p95", "p99")
_TITLES = {
    Load.CREATION: "Pods are created, 32 requests at a time, while they are scheduled",
    Load.BACKLOG: "All Pods are there before kube-scheduler starts",
}

Runs = Sequence[Run]
Figures = Callable[[Run], Mapping[str, float]]


def page(runs: Runs, handover: Handover, ours: str, beside: str) -> str:
    """Return all tables with headings. Case *ours* is compared with case *beside* in each round."""
    sections = []
    for load in Load:
        cases = _by_case(_of(runs, load))
        sections += [f"### {_TITLES[load]}", _speeds(cases)]
    sections += [f"### {ours} beside {beside}, in the same round", _beside(runs, ours, beside)]
    created = _by_case(_of(runs, Load.CREATION))
    sections += ["### Requests to the API server, each Pod", _requests(created)]
    sections += ["### Processor time, ms each Pod", _processor_time(created)]
    sections += ["### Memory, MiB", _matrix(created, lambda run: run.memory_mib, 0)]
    sections += ["### A Pod waits for the device of another", _handover(handover)]
    return "\n\n".join([_circumstances(runs), *sections])


def kinds_page(runs: Runs) -> str:
    """Return the tables of the kinds of Nodes, each a case, with headings."""
    sections = []
    for load in Load:
        sections += [f"### By kind of Node: {_TITLES[load].lower()}", _speeds(_by_case(_of(runs, load)))]
    created = _by_case(_of(runs, Load.CREATION))
    sections += ["### By kind of Node: requests to the API server, each Pod", _requests(created)]
    sections += ["### By kind of Node: processor time, ms each Pod", _processor_time(created)]
    return "\n\n".join([_circumstances(runs), *sections])


def _of(runs: Runs, load: Load) -> Runs:
    return [run for run in runs if run.load == load.value]


def replaced(text: str, tables: str, command: str) -> str:
    """Return *text* with *tables* between the marks of *command*. Raises: ValueError if a mark is missing."""
    mark = BEGIN.format(command=command)
    before, begin, rest = text.partition(mark)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the line {mark!r} and, after it, the line {END!r}")
    return f"{before}{mark}\n\n{tables}\n\n{END}{after}"


def machine() -> str:
    """Return the processors and the interpreter."""
    return f"{os.cpu_count()} processors, Python {platform.python_version()}"


def circumstances(pods: int, rounds: int, others: Sequence[float]) -> str:
    """Return the common circumstances of a page. *others* are the processors that other processes used in each run."""
    return (
        f"{pods} Pods a run, {rounds} rounds, {machine()}; other processes used {statistics.median(others):.1f} "
        "processors. Medians, with the smallest and the largest value in brackets."
    )


def spread(figures: Sequence[float], digits: int = 0) -> str:
    """Return the median of *figures*, with the smallest and the largest value in brackets."""
    middle, least, most = (f"{found:.{digits}f}" for found in (statistics.median(figures), min(figures), max(figures)))
    return f"{middle} ({least}-{most})"


def _circumstances(runs: Runs) -> str:
    rounds = sum((run.case, run.load) == (runs[0].case, runs[0].load) for run in runs) // _RUNS_A_ROUND
    others = [run.cpu_ms_per_pod["others"] * run.pods_per_second / 1000 for run in runs]
    return circumstances(runs[0].pods, rounds, others)


def _handover(handover: Handover) -> str:
    head = ["rounds", "called too early", "woken", "ms until bound, p50 / p99 / max"]
    times = " / ".join(f"{handover.ms.get(part, 0):.0f}" for part in ("p50", "p99", "max"))
    return table(head, [[str(handover.rounds), str(handover.overlooked), str(handover.woken), times]])


def _by_case(runs: Runs) -> dict[str, Runs]:
    return {case: [run for run in runs if run.case == case] for case in dict.fromkeys(run.case for run in runs)}


def _speeds(cases: Mapping[str, Runs]) -> str:
    parts = " / ".join(_PARTS)
    head = [
        "",
        "Pods/s",
        "bound/s",
        "yardstick ms",
        "kube-scheduler busy",
        "wait s, p50 / p99",
        f"filter ms, {parts}",
        f"bind ms, {parts}",
    ]
    rows = []
    for case, runs in cases.items():
        rows.append(
            [
                case,
                spread([run.pods_per_second for run in runs]),
                f"{statistics.median(run.bound_per_second for run in runs):.0f}",
                f"{statistics.median(run.yardstick_ms for run in runs):.2f}",
                f"{statistics.median(map(_kube_scheduler_busy, runs)):.2f}",
                _percentiles(runs, lambda run: run.wait_seconds, ("p50", "p99")),
                _percentiles(runs, lambda run: run.extender_ms.get("filter", {})),
                _percentiles(runs, lambda run: run.extender_ms.get("bind", {})),
            ]
        )
    return table(head, rows)


def _beside(runs: Runs, ours: str, other: str) -> str:
    """Return a table of the ratios of the case *ours* to the case *other*, by three measures."""
    measures = (lambda run: run.pods_per_second, _at_equal_speed, _kube_scheduler_busy)
    rows = []
    for load in Load:
        cases = _by_case(_of(runs, load))
        by_measure = (zip(_of_rounds(cases[ours], of), _of_rounds(cases[other], of), strict=True) for of in measures)
        rows.append([_TITLES[load], *(spread([one / two for one, two in rounds], 2) for rounds in by_measure)])
    return table(["", "by Pods/s", "by Pods/s at equal speed", "by kube-scheduler busy"], rows)


def _of_rounds(runs: Runs, measure: Callable[[Run], float]) -> list[float]:
    """Return the harmonic mean of *measure*, a rate, over the runs of each round."""
    found = list(map(measure, runs))
    return [statistics.harmonic_mean(found[at : at + _RUNS_A_ROUND]) for at in range(0, len(found), _RUNS_A_ROUND)]


def _at_equal_speed(run: Run) -> float:
    """Return the Pods a second multiplied by the yardstick's milliseconds."""
    return run.pods_per_second * run.yardstick_ms


def _kube_scheduler_busy(run: Run) -> float:
    """Return the processors that kube-scheduler used."""
    return run.cpu_ms_per_pod["kube-scheduler"] * run.pods_per_second / 1000


def _percentiles(runs: Runs, figures: Figures, parts: Sequence[str] = _PARTS) -> str:
    return " / ".join(_median([figures(run).get(part) for run in runs], 1) for part in parts)


def _requests(cases: Mapping[str, Runs]) -> str:
    return _matrix(cases, lambda run: run.requests_per_pod, 2)


def _processor_time(cases: Mapping[str, Runs]) -> str:
    return _matrix(cases, lambda run: run.cpu_ms_per_pod, 2)


def _matrix(cases: Mapping[str, Runs], figures: Figures, digits: int) -> str:
    """Return a table with a row for each key of *figures*, and a column for each case."""
    keys = sorted({key for runs in cases.values() for run in runs for key in figures(run)})
    rows = [
        [key, *(_median([figures(run).get(key) for run in runs], digits) for runs in cases.values())] for key in keys
    ]
    return table(["", *cases], rows)


def _median(values: Sequence[float | None], digits: int) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):.{digits}f}" if known else "-"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], texts: int = 1) -> str:
    """Return a table. The first columns, as many as *texts*, are left-aligned, all others are right-aligned."""
    widths = [max(len(cell) for cell in column) for column in zip(head, *rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = (
            f"{cell:<{width}}" if place < texts else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"| {' | '.join(aligned)} |"

    ruler = "".join(
        f"|{'-' * (width + 2)}" if place < texts else f"|{'-' * (width + 1)}:" for place, width in enumerate(widths)
    )
    return "\n".join([line(head), f"{ruler}|", *map(line, rows)])
