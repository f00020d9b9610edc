"""
Add samples to families.

A scrape has thousands of them, and most families have the same labels. So a dictionary of labels is made once, and its
samples share it.
"""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric, Sample

NamedLabels = dict[str, str]
"""Values of labels by name; never changed."""
Row = tuple[NamedLabels, float | None]


def add_samples(family: Metric, rows: Iterable[Row]) -> None:
    """Add a sample to *family* for each of *rows* that has a value."""
    name = f"{family.name}_total" if isinstance(family, CounterMetricFamily) else family.name
    family.samples += [Sample(name, labels, value) for labels, value in rows if value is not None]
