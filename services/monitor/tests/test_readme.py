"""
The README agrees with the program.
"""

import re
from pathlib import Path

from hami_monitor.decide.observation import Observation
from hami_monitor.metrics.collector import MonitorCollector
from hami_monitor.metrics.status import MonitorStatus

README = (Path(__file__).parents[1] / "README.md").read_text()


def section(title: str) -> str:
    """Return the part of the README under the heading *title*."""
    return re.split(r"^## ", README.split(f"\n## {title}\n")[1], flags=re.MULTILINE)[0]


def test_metrics_are_those_that_are_scraped() -> None:
    """The table has the names that Prometheus sees."""
    families = list(MonitorCollector(lambda: Observation("n1", 0.0), MonitorStatus).collect())

    assert {f.name + ("_total" if f.type == "counter" else "") for f in families} == set(
        re.findall(r"`(hami_[a-z_]+)[`{]", section("Metrics"))
    )
