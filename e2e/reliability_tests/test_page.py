"""
The page of reliability says what the kept results say, and each defect on it has its test.
"""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from reliability.page import PAGE, kept, page
from testbed import campaigns
from testbed.campaigns import ROOT, Result, read, record

RUN = Result("soak", "2026-01-31", "0123456789ab", 7, 60.2, {"Pods": 4000, "faults": 900}, ())
TEST = re.compile(r"\[`(\w+)`\]\(\.\./([\w./-]+)\) \|$")


def test_page_is_what_the_kept_results_make() -> None:
    """A result that is added, or a table that is edited, fails until the page is written again."""
    assert PAGE.read_text() == page(PAGE.read_text(), kept())


def test_results_of_a_campaign_are_added_up() -> None:
    """A run with problems stays on the page and counts as such."""
    text = page(PAGE.read_text(), [RUN, replace(RUN, seed=8, minutes=30.0, date="2026-02-01", problems=("memory: …",))])

    rows = [[cell.strip() for cell in line.strip("| ").split("|")] for line in text.splitlines() if "`soak`" in line]
    assert ["`soak`", "8,000 Pods, 1,800 faults", "2026-02-01", "2", "1.5", "1"] in rows
    assert ["2026-02-01", "`soak`", "`0123456789ab`", "4,000 Pods, 900 faults", "8", "30", "1"] in rows


def test_result_is_read_as_it_was_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the tree and the day of the run."""
    monkeypatch.setattr(campaigns, "FOLDER", tmp_path)

    path = record("soak", 7, 60.21, {"Pods": 4000, "faults": 900}, ["memory: …"])

    found = read(path.read_text())
    assert replace(RUN, date=found.date, commit=found.commit, problems=("memory: …",)) == found
    assert re.fullmatch(r"[0-9a-f]{12}\+?", found.commit)


def test_each_defect_that_was_found_has_a_test() -> None:
    """The last column of the table names a function and links its file."""
    section = PAGE.read_text().partition("## What they found")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][1:]
    assert rows

    for row in rows:
        found = TEST.search(row)
        assert found is not None, row
        assert f"def {found[1]}(" in (ROOT / found[2]).read_text(), row
