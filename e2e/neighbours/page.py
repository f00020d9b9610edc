"""
The kept results of the neighbours' tests, and the part of docs/neighbours.md that is made of them.

Owns docs/neighbours.jsonl, a line for each neighbour with its last run, and the layout of the tables. The page's other
sentences are written by hand.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from bench.report.tables import replaced, table
from harness.cluster import ROOT

PAGE = ROOT / "docs/neighbours.md"
KEPT = ROOT / "docs/neighbours.jsonl"
COMMAND = "tox -e neighbours"
"""What the mark of the page names."""
_NOTHING = "–"
NOT_RUN = (
    ("Cluster Autoscaler", "expected", "Nodes for shares: it simulates without extenders"),
    ("coscheduling of scheduler-plugins", "expected", _NOTHING),
    ("Volcano, Koordinator, KAI Scheduler", "unknown", _NOTHING),
    ("HAMi-WebUI", "unknown", _NOTHING),
)
"""Programs that nobody has run here, what is known of them, and what is expected not to work."""


class Outcome(StrEnum):
    """What a test has shown about its statement."""

    WORKS = "works"
    LIMIT = "limit"
    """It is so, and it is something that the program does not do."""
    FAILS = "fails"


@dataclass(frozen=True)
class Neighbour:
    """Programs that are tried together."""

    versions: tuple[tuple[str, str], ...]
    """Name and version of each program."""
    values: tuple[str, ...]
    """Values of the chart that people set who have these programs."""

    @property
    def title(self) -> str:
        """The programs with their versions."""
        return ", ".join(f"{name} {version}" for name, version in self.versions)

    @property
    def names(self) -> tuple[str, ...]:
        """The programs."""
        return tuple(name for name, _ in self.versions)


@dataclass(frozen=True)
class Run:
    """The last run of a neighbour's tests."""

    neighbour: Neighbour
    date: str
    """ISO 8601, UTC."""
    cluster: str
    """Such as `Kubernetes v1.37.2`."""
    services: str
    """The versions of the services."""
    statements: Mapping[str, Outcome]
    """By the first sentence of a test, what the test has shown."""

    def chosen(self, outcome: Outcome) -> list[str]:
        """Return the statements with *outcome*."""
        return [statement for statement, found in self.statements.items() if found is outcome]


def kept() -> list[Run]:
    """Return the last run of each neighbour."""
    return [_read(line) for line in KEPT.read_text(encoding="utf-8").splitlines()] if KEPT.exists() else []


def keep(runs: Iterable[Run]) -> None:
    """Keep *runs* in place of earlier ones of the same programs, and write the page."""
    found = {run.neighbour.names: run for run in (*kept(), *runs)}
    lines = [json.dumps(asdict(run), ensure_ascii=False) for run in found.values()]
    KEPT.write_text("\n".join(lines) + "\n", encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), kept()), encoding="utf-8")


def page(text: str, runs: Sequence[Run]) -> str:
    """Return the page *text* with the tables of *runs*. Raises: ValueError if a mark is missing."""
    return replaced(text, "\n\n".join([_table(runs), *map(_shown, runs)]), COMMAND)


def _read(line: str) -> Run:
    found = json.loads(line)
    neighbour = Neighbour(tuple(map(tuple, found["neighbour"]["versions"])), tuple(found["neighbour"]["values"]))
    statements = {statement: Outcome(outcome) for statement, outcome in found["statements"].items()}
    return Run(**{**found, "neighbour": neighbour, "statements": statements})


def _table(runs: Sequence[Run]) -> str:
    head = ["Program", "State", "Works", "Does not work", "Values of our chart"]
    rows = [
        [
            run.neighbour.title,
            f"run on {run.date}, {run.cluster}",
            _count(run.chosen(Outcome.WORKS), "promise"),
            _counts(run),
            ", ".join(f"`{value}`" for value in run.neighbour.values) or _NOTHING,
        ]
        for run in runs
    ]
    others = [[name, state, _NOTHING, lacks, _NOTHING] for name, state, lacks in NOT_RUN]
    return table(head, [*rows, *others], texts=len(head))


def _counts(run: Run) -> str:
    limits = _count(run.chosen(Outcome.LIMIT), "limit")
    failed = _count(run.chosen(Outcome.FAILS), "broken promise")
    return ", ".join(text for text in (limits, failed) if text != _NOTHING) or _NOTHING


def _count(statements: Sequence[str], noun: str) -> str:
    return f"{len(statements)} {noun}{'s' * (len(statements) > 1)}" if statements else _NOTHING


def _shown(run: Run) -> str:
    parts = [f"**{run.neighbour.title}**, beside {run.services}:"]
    for outcome, title in ((Outcome.WORKS, "Works"), (Outcome.LIMIT, "Limits"), (Outcome.FAILS, "Does not work")):
        if statements := run.chosen(outcome):
            parts.append(f"{title}:\n\n" + "\n".join(f"- {statement}." for statement in statements))
    return "\n\n".join(parts)
