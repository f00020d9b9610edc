"""
Make the metric families about the monitor itself.

Owns the names that start with `hami_monitor_`; HAMi has no such metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hami_monitor.decide.containers import Refusal
from hami_monitor.metrics.account_families import AccountStatus
from hami_monitor.metrics.watchdog_families import WatchdogStatus, watchdog_families


@dataclass(frozen=True, slots=True)
class MonitorStatus:
    """The monitor's own state."""

    regions: int = 0
    """Region files that are open."""
    refused: Mapping[Refusal, int] = field(default_factory=dict)
    """Containers whose region is not read, by reason."""
    writes: Mapping[str, int] = field(default_factory=dict)
    """Writes into regions since the start, by field."""
    directories_removed: int = 0
    rounds: int = 0
    is_driver_available: bool = False
    pod_lists: int = 0
    """Complete lists of Pods since the start."""
    watchdog: WatchdogStatus = field(default_factory=WatchdogStatus)
    accounts: AccountStatus = field(default_factory=AccountStatus)


def status_families(status: MonitorStatus) -> list[Metric]:
    """Return the families of *status*; every reason and field has a sample from the start."""
    refused = GaugeMetricFamily(
        "hami_monitor_regions_refused", "Containers whose region file cannot be read", labels=("reason",)
    )
    for reason in Refusal:
        refused.add_metric((reason.value,), status.refused.get(reason, 0))
    writes = CounterMetricFamily("hami_monitor_region_writes", "Values stored into region files", labels=("field",))
    for name in ("recent_kernel", "utilization_switch"):
        writes.add_metric((name,), status.writes.get(name, 0))
    return [
        GaugeMetricFamily("hami_monitor_regions", "Region files that are read", value=status.regions),
        refused,
        writes,
        CounterMetricFamily(
            "hami_monitor_directories_removed",
            "Container directories deleted because their Pod is gone",
            value=status.directories_removed,
        ),
        CounterMetricFamily("hami_monitor_rounds", "Rounds of scan and feedback", value=status.rounds),
        CounterMetricFamily("hami_monitor_pod_lists", "Complete lists of the Node's Pods", value=status.pod_lists),
        GaugeMetricFamily(
            "hami_monitor_driver_available",
            "Whether the NVIDIA driver answers, 1 or 0",
            value=int(status.is_driver_available),
        ),
        *watchdog_families(status.watchdog),
        *status.accounts.families,
    ]
