"""
Hand each scrape what the monitor knows at that moment.

Owns the assembly of one exposition. Decides nothing: `families` and `status` say what the values mean, and `main`
provides the functions that look.
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hami_monitor import __version__
from hami_monitor.decide.observation import Observation
from hami_monitor.metrics.families import families
from hami_monitor.metrics.status import MonitorStatus, status_families
from hamicommon.runtime.build import build_family


class MonitorCollector(Collector):
    """What the registry asks on each scrape."""

    def __init__(
        self, observe: Callable[[], Observation], status: Callable[[], MonitorStatus], *, has_legacy_names: bool = False
    ) -> None:
        """Ask *observe*, then *status*, which counts what that refused; *has_legacy_names* adds HAMi's up to 2.8."""
        self._observe = observe
        self._status = status
        self._has_legacy_names = has_legacy_names

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield build_family(__version__)
        yield from families(self._observe(), has_legacy_names=self._has_legacy_names)
        yield from status_families(self._status())

    def describe(self) -> Iterator[Metric]:
        """Yield nothing: without this, registering would already look at the files."""
        return iter(())
