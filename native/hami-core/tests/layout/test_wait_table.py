"""
The README's table of what a call waits for.
"""

import re
from pathlib import Path

import pytest

from hamicommon.wire.region.records import WAIT_REASONS

HERE = Path(__file__).resolve().parents[1]
HEADER = "| Who waits | For | Reason | At most | Then | Test |"


def table() -> list[list[str]]:
    """Return the cells of each row."""
    lines = (HERE.parent / "README.md").read_text().partition(HEADER)[2].strip().splitlines()[1:]
    rows = lines[: next(index for index, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_every_reason_for_a_wait_is_in_the_table() -> None:
    """And the table has no other."""
    assert set(WAIT_REASONS) == {reason for _, _, reason, *_ in table() if reason}


@pytest.mark.parametrize("row", table(), ids=lambda row: f"{row[0]}: {row[1]}")
def test_wait_has_a_bound_and_a_test(row: list[str]) -> None:
    """A row names a time, and a function that exists in this folder. Only a wait for nothing has no bound."""
    _, awaited, _, most, _, test = row
    name = test.strip("`")
    sources = (path.read_text() for path in HERE.rglob("*.[cp]*") if path.suffix in (".c", ".py"))

    assert awaited == "nothing" or re.match(r"[0-9.]+ (ms|s)$", most)
    assert any(re.search(rf"(def |void ){name}\(", source) for source in sources)
