"""
Read the samples that are wanted from a scrape.

The text may be anything that answered on the port: what is malformed is refused as a whole, in one sentence.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from hamicommon.errors import HamiError

Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]
"""The samples of each metric, by its name: labels and value."""

SAMPLES_LIMIT: Final = 500_000
"""Samples that are read of one scrape: those of 20 000 shares."""


class ScrapeError(HamiError):
    """A scrape cannot be read."""


def samples(scrape: bytes, names: Iterable[str]) -> Samples:
    """
    Return the samples of the metrics *names* in *scrape*. A value that is no finite number is left out.

    Raises:
        ScrapeError: the text is malformed, or has too many samples.
    """
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {name: [] for name in names}
    lines = list(_lines(scrape, tuple(f"{name}{end}".encode() for name in found for end in "{ ")))
    if len(lines) > SAMPLES_LIMIT:
        raise ScrapeError(f"has {len(lines)} samples, more than {SAMPLES_LIMIT}")
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                if math.isfinite(sample.value):
                    found[sample.name].append((sample.labels, sample.value))
    except (ValueError, KeyError, IndexError) as error:
        raise ScrapeError("is not in Prometheus' text format") from error
    return found


def _lines(scrape: bytes, starts: tuple[bytes, ...]) -> Iterator[str]:
    """Yield the lines that begin with one of *starts*: most of a scrape is not wanted, and parsing is slow."""
    for line in scrape.split(b"\n"):
        if line.startswith(starts):
            yield line.decode(errors="replace")
