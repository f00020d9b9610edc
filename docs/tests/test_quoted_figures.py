"""Figures that one page quotes from another are there, so a measurement that is made again changes the quotation."""

import re

import pytest

from .pages import DOCS

FIGURE = re.compile(r"(\d+(?:\.\d+)?) (?:ns|ms|s|points|MiB|%)")
LINK = re.compile(r"\[([^\]]*)\]\(([a-z-]+\.md)\)")
QUOTING = ("compare", "operate")
"""The pages whose links quote figures."""


def missing(text: str, source: str) -> list[str]:
    """Return the figures of *text* that the page *source* does not have."""
    measured = (DOCS / source).read_text().replace("two points", "2 points")
    return [figure for figure in FIGURE.findall(text) if not re.search(rf"(?<![\d.]){figure}(?![\d.])", measured)]


def test_each_cost_is_measured_on_the_page_that_it_links_to() -> None:
    """The costs are in a table; its last column links to the page."""
    page = (DOCS / "what-holds-a-share.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|") and FIGURE.search(line)]
    assert len(rows) > 3
    for row in rows:
        [(_, source)] = LINK.findall(row)
        assert [] == missing(row, source)


@pytest.mark.parametrize("name", QUOTING)
def test_figure_in_a_link_is_on_the_page_that_it_leads_to(name: str) -> None:
    """Such as `[112 MiB](filter.md)`."""
    quoted = [pair for pair in LINK.findall((DOCS / f"{name}.md").read_text()) if FIGURE.search(pair[0])]
    assert quoted
    assert [] == [(text, source) for text, source in quoted if missing(text, source)]
