"""
A metric family that reads one value of each thing of a kind, such as of each device.

Neighbours: the modules beside this one have the families.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from hami_monitor.decide.observation import Labels
from hamicommon.runtime.serving.samples import NamedLabels, Row, set_samples

T = TypeVar("T")
Kind = type[GaugeMetricFamily | CounterMetricFamily]
COUNTER: Kind = CounterMetricFamily


@dataclass(frozen=True, slots=True)
class Family(Generic[T]):
    """A family with a sample for each thing that has a value."""

    name: str
    documentation: str
    value: Callable[[T], float | None]
    kind: Kind = GaugeMetricFamily

    def of(self, labels: Labels, things: Iterable[tuple[NamedLabels, T]]) -> Metric:
        """Return the metric with the samples of *things*, which come with the values of their *labels*."""
        rows = ((place, self.value(one)) for place, one in things)
        return filled(self.name, self.documentation, labels, rows, self.kind)


def filled(
    name: str, documentation: str, labels: Labels, rows: Iterable[Row], kind: Kind = GaugeMetricFamily
) -> Metric:
    """Return the family *name* with a sample for each of *rows* that has a value."""
    family = kind(name, documentation, labels=labels)
    set_samples(family, rows)
    return family


def named(names: Labels, values: Labels) -> NamedLabels:
    """Return *values* by *names*."""
    return dict(zip(names, values, strict=True))
