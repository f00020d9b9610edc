"""
Answer each scrape with the present state of the monitor.

Neighbours: `families` and `status` make the metrics, `hami_monitor.serve.monitor` provides the state.
"""

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hami_monitor import __version__
from hami_monitor.decide.observation import Observation
from hami_monitor.metrics.families import families
from hami_monitor.metrics.status import MonitorStatus, status_families
from hamicommon.runtime.serving.build import build_family


class MonitorCollector(Collector):
    """The collector that the registry calls for each scrape."""

    def __init__(
        self, observe: Callable[[], Observation], status: Callable[[], MonitorStatus], *, has_legacy_names: bool = False
    ) -> None:
        """Call *observe*, then *status*, which counts its refusals; *has_legacy_names* adds HAMi's names up to 2.8."""
        self._observe = observe
        self._status = status
        self._has_legacy_names = has_legacy_names

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield build_family(__version__)
        yield from families(self._observe(), has_legacy_names=self._has_legacy_names)
        yield from status_families(self._status())

    def describe(self) -> Iterator[Metric]:
        """Yield nothing, so that registering does not read the files."""
        return iter(())
