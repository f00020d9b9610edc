"""
What the tests of neighbours have shown, kept for their page.
"""

import datetime
import inspect
from collections.abc import Generator
from importlib.metadata import version

import pytest

from controlplane.programs.build import DEFAULT_KUBERNETES, KUBERNETES
from neighbours.page import Neighbour, Outcome, Run, keep

RESULTS = pytest.StashKey[dict[Neighbour, dict[str, Outcome]]]()
"""What each test states about its neighbour, and what it has shown."""
SERVICES = ("hami-webhook", "hami-scheduler", "hami-device-plugin", "hami-monitor")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the page."""
    parser.addoption("--write", action="store_true", help="keep the results, and write docs/neighbours.md")


def pytest_configure(config: pytest.Config) -> None:
    """Begin without results."""
    config.stash[RESULTS] = {}


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Function) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Keep what a test has shown: the first sentence of its docstring, about NEIGHBOUR of its module."""
    report = yield
    if report.when == "call" or report.failed:
        statement = (inspect.getdoc(item.function) or "").splitlines()[0].rstrip(".")
        statements = item.config.stash[RESULTS].setdefault(item.module.NEIGHBOUR, {})
        shown = Outcome.LIMIT if item.get_closest_marker("limit") else Outcome.WORKS
        if statements.get(statement) is not Outcome.FAILS:
            statements[statement] = shown if report.passed else Outcome.FAILS
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep the results, and write the page."""
    if not session.config.getoption("--write"):
        return
    minor = session.config.getoption("--kubernetes") or DEFAULT_KUBERNETES
    is_real = session.config.getoption("--cluster") == "real"
    services = ", ".join(f"{name.removeprefix('hami-')} {version(name)}" for name in SERVICES)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    cluster = f"Kubernetes {KUBERNETES[minor]}" if is_real else "the embedded cluster"
    results = session.config.stash[RESULTS].items()
    keep(Run(neighbour, today, cluster, services, statements) for neighbour, statements in results)
