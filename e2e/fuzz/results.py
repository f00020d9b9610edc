"""
What a run of a target has shown: read from libFuzzer's log, printed as a table.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

_STATUS: Final = re.compile(r"#(\d+)\s+[A-Z]\w*\s+cov: (\d+) ft: (\d+)")
_STAT: Final = re.compile(r"stat::(\w+):\s+(\d+)")
_ERROR: Final = re.compile(r"(?:ERROR: (?:libFuzzer: |\w+Sanitizer: )?|runtime error: )(.*)")
_WRITTEN: Final = re.compile(r"Test unit written to (.+)")
_EXCEPTION: Final = "=== Uncaught Python exception: ==="


@dataclass(frozen=True)
class Progress:
    """How far a process has come, or had when it ended."""

    inputs: int = 0
    edges: int = 0
    features: int = 0
    """Of the coverage: how often an edge was passed counts, too."""
    new_entries: int = 0
    """Inputs that reached something new, beyond the seeds and what earlier runs kept."""
    problem: str = ""
    """The first line of what ended it; empty if nothing did."""
    file: str = ""
    """Where it wrote the input that ended it; empty if it wrote none."""


@dataclass(frozen=True)
class Finding:
    """An input for which a target fails."""

    problem: str
    file: str
    replay: str
    """The command that fails again."""


@dataclass(frozen=True)
class Result:
    """What a target has shown in all its processes."""

    target: str
    seed: int
    seconds: float
    inputs: int = 0
    edges: int = 0
    features: int = 0
    new_entries: int = 0
    findings: tuple[Finding, ...] = ()
    skipped: str = ""
    """Why it has not run; empty if it has."""


def progress(log: str) -> Progress:
    """
    Return what libFuzzer's *log* says.

    >>> progress("#2 INITED cov: 3 ft: 4 corp: 1/1b\\n#9 DONE cov: 5 ft: 8 corp: 2/3b\\nstat::new_units_added: 1\\n")
    Progress(inputs=9, edges=5, features=8, new_entries=1, problem='', file='')
    """
    statuses = _STATUS.findall(log)
    inputs, edges, features = map(int, statuses[-1]) if statuses else (0, 0, 0)
    stats = {name: int(number) for name, number in _STAT.findall(log)}
    inputs = stats.get("number_of_executed_units", inputs)
    new_entries = stats.get("new_units_added", log.count("\tNEW "))
    written = _WRITTEN.findall(log)
    return Progress(inputs, edges, features, new_entries, _problem(log), written[-1] if written else "")


def _problem(log: str) -> str:
    _, exception, after = log.partition(_EXCEPTION)
    if exception:
        return next(filter(None, after.splitlines()), "")[:200]
    found = _ERROR.search(log)
    return found[1][:200] if found else ""


def table(results: Iterable[Result]) -> str:
    """Return *results* as lines with aligned columns, and under them what was found and what was skipped."""
    heads = ("target", "inputs", "inputs/s", "edges", "features", "new", "findings", "seed")
    rows: list[tuple[str, ...]] = [heads]
    notes = []
    for result in results:
        if result.skipped:
            notes.append(f"skipped: {result.target}: {result.skipped}")
            continue
        rate = result.inputs / max(result.seconds, 0.1)
        numbers = (result.inputs, round(rate), result.edges, result.features, result.new_entries, len(result.findings))
        rows.append((result.target, *(f"{number:,}" for number in numbers), str(result.seed)))
        notes += [f"{result.target}: {found.problem}\n    {found.replay}" for found in result.findings]
    return "\n".join([*_aligned(rows), *notes])


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width) for place, (cell, width) in enumerate(cells)
        ).rstrip()
        for cells in (zip(row, widths, strict=True) for row in rows)
    ]
