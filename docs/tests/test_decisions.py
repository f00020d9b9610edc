"""The index of decisions lists every record with its title and status, and explains the numbers without a record."""

import re
from pathlib import Path

from .pages import DOCS

FOLDER = DOCS / "decisions"
RECORDS = sorted(FOLDER.glob("[0-9]*.md"))
STATUS = re.compile(r"^(Amended|Superseded) by \[record (\d+)\]\((\d{4}-[\w-]+\.md)\)", re.MULTILINE)
"""The line below a record's heading, once another has changed or replaced it."""


def number_of(record: Path) -> int:
    """Return the number in a record's name."""
    return int(record.name[:4])


def row(record: Path) -> str:
    """Return the line of the index for *record*."""
    heading = record.read_text().partition("\n")[0]
    title = heading.removeprefix(f"# {number_of(record)}. ")
    return f"| {number_of(record)} | [{title}]({record.name}) | {status(record)} |"


def status(record: Path) -> str:
    """Return `accepted`, or what became of *record* and by which other."""
    changed = STATUS.search(record.read_text())
    if changed is None:
        return "accepted"
    word = "accepted, amended" if changed[1] == "Amended" else "superseded"
    return f"{word} by [{changed[2]}]({changed[3]})"


def test_index_has_every_record_with_title_and_status() -> None:
    """Write the lines that this test expects."""
    lines = (FOLDER / "README.md").read_text().splitlines()

    assert [row(record) for record in RECORDS] == [line for line in lines if re.match(r"\| \d", line)]


def test_headings_have_the_numbers_of_their_files() -> None:
    """A record is found by either."""
    assert [] == [one.name for one in RECORDS if not one.read_text().startswith(f"# {number_of(one)}. ")]


def test_numbers_without_a_record_are_explained() -> None:
    """Each number up to the last is used once, or is on the line that says why not."""
    numbers = [number_of(record) for record in RECORDS]
    [unused] = re.findall(r"^Not used: (.*)\.", (FOLDER / "README.md").read_text(), re.MULTILINE)

    assert list(range(1, numbers[-1] + 1)) == sorted([*numbers, *map(int, re.findall(r"\d+", unused))])


def test_amended_record_and_the_one_that_amends_it_link_each_other() -> None:
    """A reader of either finds the other."""
    changed = [(one, STATUS.search(one.read_text())) for one in RECORDS]

    assert [] == [one.name for one, by in changed if by and one.name not in (FOLDER / by[3]).read_text()]
