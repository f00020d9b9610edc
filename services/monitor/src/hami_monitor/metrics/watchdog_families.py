"""
Make the metric families of the watchdog.

Owns the names that start with `hami_monitor_watchdog_`; HAMi has no such metrics.
Neighbours: `status` has the values, `hami_monitor.serve.watchdog` keeps them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hami_monitor.decide.watchdog.findings import Finding, Kind

EVICTED, REFUSED, FAILED = "evicted", "refused", "failed"
EVICTION_RESULTS = (EVICTED, REFUSED, FAILED)


@dataclass(frozen=True, slots=True)
class WatchdogStatus:
    """The watchdog's present state."""

    is_active: bool = False
    findings: Iterable[Finding] = ()
    """Those that last."""
    found: Mapping[Kind, int] = field(default_factory=dict)
    """Findings since the start."""
    evictions: Mapping[str, int] = field(default_factory=dict)
    """Attempts to evict a Pod since the start, by result."""


def watchdog_families(status: WatchdogStatus) -> list[Metric]:
    """Return the families of *status*; every kind has a sample of the counter from the start."""
    findings = GaugeMetricFamily(
        "hami_monitor_watchdog_findings",
        "1 while a container uses a device otherwise than granted, by kind "
        f"({', '.join(kind.value for kind in Kind)}).",
        labels=("namespace", "pod", "container", "device_uuid", "kind"),
    )
    for finding in status.findings:
        place = finding.place
        findings.add_metric((place.namespace, place.pod, place.container, place.device_uuid, finding.kind.value), 1)
    found = CounterMetricFamily("hami_monitor_watchdog_found", "Findings since the start, by kind.", labels=("kind",))
    for kind in Kind:
        found.add_metric((kind.value,), status.found.get(kind, 0))
    evictions = CounterMetricFamily(
        "hami_monitor_watchdog_evictions",
        "Attempts to evict a Pod for a finding, by result (evicted, refused by a PodDisruptionBudget, failed).",
        labels=("result",),
    )
    for result in EVICTION_RESULTS:
        evictions.add_metric((result,), status.evictions.get(result, 0))
    return [
        GaugeMetricFamily(
            "hami_monitor_watchdog_active",
            "1 while the processes of the Node are compared with the grants; 0 if the watchdog is switched off or "
            "cannot see them.",
            value=int(status.is_active),
        ),
        findings,
        found,
        evictions,
    ]
