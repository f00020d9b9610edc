"""
One cluster with its neighbours for all tests, and the page of what they found.
"""

import datetime
import inspect
from collections.abc import Generator
from importlib.metadata import version
from pathlib import Path

import pytest

from neighbours.page import Neighbour, with_table

RESULTS = pytest.StashKey[dict[Neighbour, dict[str, bool]]]()
"""What each test states about its neighbour, and whether it holds."""
SERVICES = ("hami-webhook", "hami-scheduler", "hami-device-plugin", "hami-monitor")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that names the page."""
    parser.addoption("--write", type=Path, help="write the results into this page")


def pytest_configure(config: pytest.Config) -> None:
    """Begin without results."""
    config.stash[RESULTS] = {}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep whether the promise of a test holds: the first sentence of its docstring, about NEIGHBOUR of its module."""
    report = yield
    if report.when == "call" or report.failed:
        statement = (inspect.getdoc(item.function) or "").splitlines()[0].rstrip(".")
        statements = item.config.stash[RESULTS].setdefault(item.module.NEIGHBOUR, {})
        statements[statement] = report.passed and statements.get(statement, True)
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the page."""
    page: Path | None = session.config.getoption("--write")
    if page is None:
        return
    results = session.config.stash[RESULTS]
    services = ", ".join(f"{name.removeprefix('hami-')} {version(name)}" for name in SERVICES)
    text = with_table(
        page.read_text(encoding="utf-8"),
        results,
        f"on the embedded cluster, beside {services}",
        datetime.datetime.now(datetime.UTC).date(),
    )
    page.write_text(text, encoding="utf-8")
