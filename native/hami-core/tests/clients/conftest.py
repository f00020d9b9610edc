"""
The option `--write PAGE`: run every client, also those with large packages, and write the page.

Fixtures: the rows of the page.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.page import Row, page


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--write", type=Path, metavar="PAGE", help="run every client, and write the page")


@pytest.fixture(scope="session")
def rows(request: pytest.FixtureRequest) -> Iterator[list[Row]]:
    """The rows of the page, filled by the tests. It is written afterwards if all passed."""
    found: list[Row] = []
    yield found
    target = request.config.getoption("--write", None)
    if target is not None and not request.session.testsfailed:
        target.write_text(page(found), encoding="utf-8")
