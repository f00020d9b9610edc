"""Figures that one page quotes from another are there."""

import re

from .pages import DOCS

PAGE = DOCS / "what-holds-a-share.md"
FIGURE = re.compile(r"(\d+(?:\.\d+)?) (?:ns|ms|points)")
SOURCE = re.compile(r"\]\(([a-z-]+\.md)\)")


def test_each_cost_is_measured_on_the_page_that_it_links_to() -> None:
    """A measurement that is made again must change the quotation."""
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("|") and FIGURE.search(line)]
    assert len(rows) > 3
    for row in rows:
        [source] = SOURCE.findall(row)
        measured = (DOCS / source).read_text().replace("two points", "2 points")
        missing = [figure for figure in FIGURE.findall(row) if not re.search(rf"(?<![\d.]){figure}(?![\d.])", measured)]
        assert not missing, f"{source} has no {missing}"
