"""
Make the metric families of what a container's library waits for beside the driver, and of what it does not reach.

Owns the names that start with `hami_library_`. A reason has samples once there was such a wait, and a kind once it was
counted.
Neighbours: `hami_monitor.decide.observation` has the values, `families` the other names.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hami_monitor.decide.observation import Labels
from hamicommon.runtime.serving.samples import set_samples
from hamicommon.wire.region import Unreached, WaitRecord

WAIT: Labels = ("namespace", "pod", "container", "reason")
UNREACHED: Labels = ("namespace", "pod", "container", "kind")


@dataclass(frozen=True, slots=True)
class WaitFamily:
    """A family with a sample for each reason for which a container's library has waited."""

    name: str
    documentation: str
    value: Callable[[WaitRecord], float]
    kind: type[GaugeMetricFamily | CounterMetricFamily]


WAIT_FAMILIES = (
    WaitFamily(
        "hami_library_waits",
        "Waits of the container's library that are not the driver's, by reason.",
        lambda record: record.waits,
        CounterMetricFamily,
    ),
    WaitFamily(
        "hami_library_wait_seconds",
        "Time of these waits, summed over them.",
        lambda record: record.nanoseconds * 1e-9,
        CounterMetricFamily,
    ),
    WaitFamily(
        "hami_library_wait_longest_seconds",
        "The longest of these waits since the container started.",
        lambda record: record.longest_microseconds * 1e-6,
        GaugeMetricFamily,
    ),
)


def wait_families(waits: Iterable[tuple[Labels, WaitRecord]]) -> Iterator[Metric]:
    """Yield every family of *waits*: namespace, Pod and container, and what the library recorded."""
    places = [(dict(zip(WAIT, (*labels, record.reason), strict=True)), record) for labels, record in waits]
    for family in WAIT_FAMILIES:
        metric = family.kind(family.name, family.documentation, labels=WAIT)
        set_samples(metric, ((place, family.value(record)) for place, record in places))
        yield metric


def unreached_family(unreached: Iterable[tuple[Labels, Unreached]]) -> Metric:
    """Return the family of what libraries do not reach: of each container, namespace, Pod, name and counts."""
    metric = CounterMetricFamily(
        "hami_library_unreached",
        "Uses of the driver past the container's library: libraries opened with dlmopen, second copies of the driver.",
        labels=UNREACHED,
    )
    counts = (
        ((*labels, kind), count)
        for labels, found in unreached
        for kind, count in (("dlmopen", found.namespaces), ("second-driver", found.second_drivers))
        if count
    )
    set_samples(metric, ((dict(zip(UNREACHED, labels, strict=True)), count) for labels, count in counts))
    return metric
