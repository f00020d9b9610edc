"""
The table of docs/neighbours.md: which program ran beside the services, what worked, and what did not.

Owns the table and its place on the page. The page's other sentences are written by hand.
"""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.report.tables import replaced, table

COMMAND = "tox -e neighbours"
"""What the mark of the page names."""
_NOTHING = "–"


@dataclass(frozen=True, eq=False)
class Neighbour:
    """Programs that are tried together."""

    versions: Mapping[str, str]
    """The version of each program, by its name."""
    values: Sequence[str]
    """Values of the chart that people set who have these programs."""


def with_table(
    text: str, results: Mapping[Neighbour, Mapping[str, bool]], circumstances: str, today: datetime.date
) -> str:
    """
    Return the page *text* with the *results* of a run: by statement, whether it holds.

    Raises: ValueError if a mark is missing.
    """
    head = ["Program", "Works", "Does not work", "Values"]
    rows = [
        [
            ", ".join(f"{name} {version}" for name, version in neighbour.versions.items()),
            _listed([statement for statement, holds in statements.items() if holds]),
            _listed([statement for statement, holds in statements.items() if not holds]),
            _listed([f"`{value}`" for value in neighbour.values]),
        ]
        for neighbour, statements in results.items()
    ]
    when = f"Last run on {today.day} {today:%B %Y}, {circumstances}."
    return replaced(text, f"{when}\n\n{table(head, rows, texts=len(head))}", COMMAND)


def _listed(items: Sequence[str]) -> str:
    return "<br>".join(items) or _NOTHING
