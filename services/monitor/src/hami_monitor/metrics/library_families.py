"""
Make the metric families of what a container's library waits for beside the driver, and of what it does not reach.

Owns the names that start with `hami_library_`. A reason has samples once there was such a wait, and a kind once it was
counted.
Neighbours: `hami_monitor.decide.observation` has the values, `families` the other names.
"""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from hami_monitor.decide.observation import Labels
from hami_monitor.metrics.family import COUNTER, Family, filled, named
from hamicommon.wire.region import Unreached, WaitRecord

WAIT: Labels = ("namespace", "pod", "container", "reason")
UNREACHED: Labels = ("namespace", "pod", "container", "kind")


WAIT_FAMILIES: tuple[Family[WaitRecord], ...] = (
    Family(
        "hami_library_waits",
        "Waits of the container's library that are not the driver's, by reason.",
        lambda record: record.waits,
        COUNTER,
    ),
    Family(
        "hami_library_wait_seconds",
        "Time of these waits, summed over them.",
        lambda record: record.nanoseconds * 1e-9,
        COUNTER,
    ),
    Family(
        "hami_library_wait_longest_seconds",
        "The longest of these waits since the container started.",
        lambda record: record.longest_microseconds * 1e-6,
    ),
)


def wait_families(waits: Iterable[tuple[Labels, WaitRecord]]) -> Iterator[Metric]:
    """Yield every family of *waits*: namespace, Pod and container, and what the library recorded."""
    places = [(named(WAIT, (*labels, record.reason)), record) for labels, record in waits]
    return (family.of(WAIT, places) for family in WAIT_FAMILIES)


def unreached_family(unreached: Iterable[tuple[Labels, Unreached]]) -> Metric:
    """Return the family of what libraries do not reach: of each container, namespace, Pod, name and counts."""
    rows = (
        (named(UNREACHED, (*labels, kind)), count)
        for labels, found in unreached
        for kind, count in (("dlmopen", found.namespaces), ("second-driver", found.second_drivers))
        if count
    )
    return filled(
        "hami_library_unreached",
        "Uses of the driver past the container's library: libraries opened with dlmopen, second copies of the driver.",
        UNREACHED,
        rows,
        COUNTER,
    )
