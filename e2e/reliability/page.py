"""
The tables of the page of reliability.

Owns their layout and the file of kept results. Neighbour: `testbed.campaigns` knows the form of a result.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from bench.report.tables import replaced, table
from testbed.campaigns import ROOT, Result, read

PAGE = ROOT / "docs/reliability.md"
KEPT = ROOT / "docs/reliability.jsonl"
COMMAND = "python -m reliability"


def kept() -> list[Result]:
    """Return the kept results, oldest first."""
    return [read(line) for line in KEPT.read_text().splitlines()] if KEPT.exists() else []


def page(text: str, results: Sequence[Result]) -> str:
    """Return the page *text* with the tables of *results*. Raises: ValueError if a mark is missing."""
    return replaced(text, f"{_by_campaign(results)}\n\n### Each run\n\n{_runs(results)}", COMMAND)


def _by_campaign(results: Sequence[Result]) -> str:
    rows = []
    for campaign in dict.fromkeys(result.campaign for result in results):
        own = [result for result in results if result.campaign == campaign]
        total = sum((Counter(result.amounts) for result in own), Counter[str]())
        hours = sum(result.minutes for result in own) / 60
        clean = sum(not result.problems for result in own)
        numbers = [f"{len(own)}", f"{hours:.1f}", f"{clean}"]
        rows.append([f"`{campaign}`", _amounts(total), own[-1].date, *numbers])
    return table(["campaign", "what it did", "last run", "runs", "hours", "runs without a problem"], rows, texts=3)


def _runs(results: Iterable[Result]) -> str:
    rows = [
        [
            result.date,
            f"`{result.campaign}`",
            f"`{result.commit}`",
            _amounts(result.amounts),
            f"{result.seed}",
            f"{result.minutes:g}",
            f"{len(result.problems)}",
        ]
        for result in results
    ]
    return table(["ended", "campaign", "tree", "what it did", "seed", "minutes", "problems"], rows, texts=4)


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in amounts.items())
