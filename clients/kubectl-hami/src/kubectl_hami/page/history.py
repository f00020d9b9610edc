"""
The use of each Pod over time, since the page was opened.

Its memory is bounded: two rings of samples for each Pod, and at most POD_LIMIT Pods. Knows neither clock nor cluster.
"""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import dropwhile
from typing import Final, NamedTuple

SAMPLE_LIMIT: Final = 720
"""Samples that are kept: an hour, at one every five seconds."""
POD_LIMIT: Final = 10_000
"""Pods that are remembered, 6 KiB each. Those seen later have no history."""

_UNKNOWN: Final = math.nan


class Use(NamedTuple):
    """What a Pod uses at one moment, over all its shares; None if it was not measured."""

    memory_mib: float | None
    core_percent: float | None
    """Device time, in percent of one device."""


@dataclass(frozen=True, slots=True)
class Series:
    """Use over time."""

    times: tuple[float, ...]
    """Seconds since 1970, ascending."""
    uses: tuple[Use, ...]
    """One for each time."""
    source: str
    """A few words for people: where this comes from."""


class History:
    """A ring of samples."""

    def __init__(self, samples: int = SAMPLE_LIMIT, pods: int = POD_LIMIT) -> None:
        self._times = array("d", [_UNKNOWN]) * samples
        self._uses: dict[str, tuple[array[float], array[float]]] = {}
        self._pod_limit = pods
        self._count = 0

    def record(self, now: float, uses: Mapping[str, Use]) -> None:
        """Add a sample: what each Pod, by `namespace/name`, uses *now*."""
        size = len(self._times)
        slot = self._count % size
        self._times[slot] = now
        if slot == 0:
            self._forget()
        for pod in self._uses.keys() - uses.keys():
            self._put(pod, slot, Use(None, None))
        for pod, use in uses.items():
            if pod not in self._uses and len(self._uses) < self._pod_limit:
                self._uses[pod] = array("f", [_UNKNOWN]) * size, array("f", [_UNKNOWN]) * size
            if pod in self._uses:
                self._put(pod, slot, use)
        self._count += 1

    def of(self, pod: str) -> Series:
        """Return the samples of *pod* from its first known one on; none if it has none."""
        found: list[tuple[float, Use]] = []
        if pod in self._uses:
            size = len(self._times)
            order = (number % size for number in range(max(0, self._count - size), self._count))
            rings = self._uses[pod]
            found = [(self._times[slot], Use(*(_known(ring[slot]) for ring in rings))) for slot in order]
        kept = list(dropwhile(lambda sample: sample[1] == (None, None), found))
        return Series(tuple(time for time, _ in kept), tuple(use for _, use in kept), "since this page was opened")

    def _put(self, pod: str, slot: int, use: Use) -> None:
        for ring, value in zip(self._uses[pod], use, strict=True):
            ring[slot] = _UNKNOWN if value is None else value

    def _forget(self) -> None:
        """Forget the Pods without a sample."""
        gone = [pod for pod, rings in self._uses.items() if all(math.isnan(value) for ring in rings for value in ring)]
        for pod in gone:
            del self._uses[pod]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 1)
