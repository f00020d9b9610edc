"""
Add up the device time that the monitors count.

A counter of a monitor never falls, unless its file was lost; then it begins at zero. Neighbours: `read.collect` has the
scrapes, `read.prometheus` their history.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kubectl_hami.answer.exposition import ScrapeError, samples
from kubectl_hami.values.cluster import ClusterSnapshot

HOUR_SECONDS: Final = 3600
_MODEL: Final = "device_type"


@dataclass(frozen=True, slots=True)
class DeviceHours:
    """Hours of one whole device, of a namespace, Pod, model or Node. A field that the row does not have is None."""

    namespace: str | None
    pod: str | None
    model: str
    held_hours: float
    used_hours: float | None
    """What was used of it; None if nothing measured it."""
    offered_hours: float | None = None
    idle_hours: float | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Counter:
    """A counter in seconds of one whole device, that fills one field of a row."""

    field: str
    metric: str
    labels: tuple[str, ...]
    """What tells its series apart in a cluster, whichever monitor exports them."""


_POD: Final = ("node", "namespace", "pod", _MODEL)
_NAMESPACE: Final = ("node", "namespace", _MODEL)
_DEVICE: Final = ("node", "device_uuid", _MODEL)

_OF_DEVICES: Final = (
    Counter("offered_hours", "hami_device_offered_seconds_total", _DEVICE),
    Counter("held_hours", "hami_device_held_seconds_total", _DEVICE),
    Counter("idle_hours", "hami_device_idle_seconds_total", _DEVICE),
    Counter("used_hours", "hami_namespace_used_seconds_total", _NAMESPACE),
)

COUNTERS: Final[Mapping[str, tuple[Counter, ...]]] = {
    "namespaces": (
        Counter("held_hours", "hami_namespace_held_seconds_total", _NAMESPACE),
        Counter("used_hours", "hami_namespace_used_seconds_total", _NAMESPACE),
    ),
    "pods": (
        Counter("held_hours", "hami_share_held_seconds_total", _POD),
        Counter("used_hours", "hami_share_used_seconds_total", _POD),
    ),
    "models": _OF_DEVICES,
    "nodes": _OF_DEVICES,
}
"""The counters of each table."""

LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "namespaces": ("namespace", _MODEL),
    "pods": ("namespace", "pod", _MODEL),
    "models": (_MODEL,),
    "nodes": ("node", _MODEL),
}
"""By what each table adds up."""

Total = tuple[Counter, Mapping[str, str], float]
"""A counter, the labels of one series or of a sum of series, and seconds."""


def totals(of: str, cluster: ClusterSnapshot, earlier: ClusterSnapshot | None, problems: list[str]) -> Iterator[Total]:
    """
    Yield what the monitors in *cluster* have counted for the table *of*, since *earlier* if that is given.

    A Node that cannot be compared is left out, and *problems* says so.
    """
    for node, scrape in cluster.monitors.items():
        if earlier and node not in earlier.monitors and not _is_new(node, earlier):
            problems.append(f"node {node} is left out: the archive has no metrics of its monitor")
            continue
        try:
            before = _counted(of, earlier.monitors.get(node, b"") if earlier else b"")
            now = _counted(of, scrape)
        except ScrapeError as error:
            problems.append(f"node {node} is left out: its monitor's answer {error}")
            continue
        for counter in COUNTERS[of]:
            for series, seconds in now[counter.metric].items():
                start = before[counter.metric].get(series, 0.0)
                # What fell has begun at zero since.
                grown = seconds - start if seconds >= start else seconds
                yield counter, dict(zip(counter.labels, series, strict=True)), grown


def _is_new(node: str, earlier: ClusterSnapshot) -> bool:
    """Return whether *earlier* knows the Nodes, and *node* is none of them: then all it has counted is later."""
    return bool(earlier.nodes) and all(node != one["metadata"]["name"] for one in earlier.nodes)


def _counted(of: str, scrape: bytes) -> dict[str, dict[tuple[str, ...], float]]:
    """
    Return each counter of *scrape*, by metric and by the values of its labels.

    Raises: ScrapeError.
    """
    labels = {counter.metric: counter.labels for counter in COUNTERS[of]}
    return {
        metric: {tuple(found.get(name, "") for name in labels[metric]): value for found, value in each}
        for metric, each in samples(scrape, labels).items()
    }


def query(counter: Counter, of: str, seconds: int) -> str:
    """
    Return the PromQL for what *counter* has grown in the last *seconds*, added up as the table *of* does.

    >>> query(COUNTERS["namespaces"][0], "namespaces", 86400)
    'sum by (namespace, device_type) (increase(max by (node, namespace, device_type) (hami_namespace_held_seconds_total)[86400s:60s]))'
    """  # noqa: E501 - a query is one line
    # As `max by`, so that the monitors that follow each other on a Node are one series.
    joined = f"max by ({', '.join(counter.labels)}) ({counter.metric})"
    step = max(60, seconds // 5000)
    return f"sum by ({', '.join(LABELS[of])}) (increase({joined}[{seconds}s:{step}s]))"


def hours(of: str, found: Iterable[Total], namespace: str = "") -> list[DeviceHours]:
    """Return the rows of the table *of* that have any hours, most held first; of *namespace* if one is named."""
    sums: dict[tuple[str, ...], dict[str, float]] = defaultdict(dict)
    for counter, labels, seconds in found:
        if not namespace or labels.get("namespace", namespace) == namespace:
            row = sums[tuple(labels.get(name, "") for name in LABELS[of])]
            row[counter.field] = row.get(counter.field, 0.0) + seconds / HOUR_SECONDS
    rows = [_row(dict(zip(LABELS[of], key, strict=True)), row) for key, row in sums.items() if any(row.values())]
    return ordered(rows, "held")


ORDERS: Final[Mapping[str, Callable[[DeviceHours], float]]] = {
    "name": lambda row: 0,
    "held": lambda row: -row.held_hours,
    "used": lambda row: -(row.used_hours or 0),
}
"""How rows can be sorted. Rows of equal rank are in the order of names."""


def ordered(rows: Iterable[DeviceHours], order: str) -> list[DeviceHours]:
    """Return *rows* in an order of `ORDERS`."""
    rank = ORDERS[order]
    return sorted(rows, key=lambda row: (rank(row), row.namespace or "", row.pod or "", row.node or "", row.model))


def _row(labels: Mapping[str, str], sums: Mapping[str, float]) -> DeviceHours:
    return DeviceHours(
        namespace=labels.get("namespace"),
        pod=labels.get("pod"),
        model=labels[_MODEL],
        held_hours=sums.get("held_hours", 0.0),
        used_hours=sums.get("used_hours"),
        offered_hours=sums.get("offered_hours"),
        idle_hours=sums.get("idle_hours"),
        node=labels.get("node"),
    )
