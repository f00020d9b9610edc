"""
Hand each scrape what the monitor knows at that moment.

Owns the assembly of one exposition. Decides nothing: `families` and `status` say what the values mean, and `main`
provides the functions that look.
"""

import platform
import sys
from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hami_monitor.families import Observation, build_family, families
from hami_monitor.status import MonitorStatus, status_families

_GO_MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}


class MonitorCollector(Collector):
    """What the registry asks on each scrape."""

    def __init__(
        self,
        observe: Callable[[], Observation],
        status: Callable[[], MonitorStatus],
        version: str,
        *,
        legacy: bool = False,
    ) -> None:
        """Ask *observe* and then *status*, which also counts what *observe* refused; *legacy* adds the old names."""
        self._observe = observe
        self._status = status
        self._version = version
        self._legacy = legacy

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        machine = platform.machine()
        yield build_family(
            self._version, platform.python_version(), f"{sys.platform}/{_GO_MACHINES.get(machine, machine)}"
        )
        yield from families(self._observe(), legacy=self._legacy)
        yield from status_families(self._status())

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: without this, registering would already look at the files."""
        return iter(())
