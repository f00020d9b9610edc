"""
What holds for all tests of this tree: a generated example may take its time, and skips are reported twice.

A generated example may take its time, because machines differ. Where `HAMI_SKIPPED` names a file, each run adds what it
skipped, so that `make test` can print the skips of all parts in one place (tools/skipped.py).
"""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("hami", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hami")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add a line for each skipped test to the file: the test's file and the reason. Suites side by side share it."""
    file = os.environ.get("HAMI_SKIPPED")
    is_worker = hasattr(terminalreporter.config, "workerinput")  # of xdist, whose controller has the reports of all
    if file and not is_worker:
        skipped = [
            json.dumps([report.nodeid.partition("::")[0], report.longrepr[2].removeprefix("Skipped: ")])
            for report in terminalreporter.stats.get("skipped", [])
        ]
        with Path(file).open("a", encoding="utf-8") as lines:
            lines.write("".join(f"{line}\n" for line in skipped))
