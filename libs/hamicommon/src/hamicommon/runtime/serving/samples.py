"""
Give families their samples at little cost.

A scrape has thousands of samples, and most families have the same labels. So a dictionary of labels is made once for
all of them, and a sample is an object only for those who ask for one: `exposition` writes it without.
"""

from collections.abc import Collection, Iterable, Iterator

from prometheus_client.core import CounterMetricFamily, Metric, Sample

PAUSE = Metric("pause", "", "untyped")
"""What a collector yields between two parts of long work, so that others may go first. It is no family."""
NamedLabels = dict[str, str]
"""Values of labels by name; never changed."""
Row = tuple[NamedLabels, float | None]
Entry = tuple[str, NamedLabels, float]
"""Name, labels and value of a sample that has nothing else."""


class Samples(Collection[Sample]):
    """The samples of a family."""

    __slots__ = ("entries", "name")

    def __init__(self, name: str, rows: Iterable[Row]) -> None:
        """Keep those of *rows* that have a value; *name* is that of every sample."""
        self.name = name
        self.entries: list[Entry] = [(name, labels, value) for labels, value in rows if value is not None]

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Sample]:
        return (Sample(*entry) for entry in self.entries)

    def __contains__(self, sample: object) -> bool:
        return any(sample == one for one in self)


def set_samples(family: Metric, rows: Iterable[Row]) -> None:
    """Make a sample of *family* for each of *rows* that has a value; there are no others."""
    name = f"{family.name}_total" if isinstance(family, CounterMetricFamily) else family.name
    family.samples = Samples(name, rows)  # type: ignore[assignment]  # Nothing needs more of it than to iterate.
