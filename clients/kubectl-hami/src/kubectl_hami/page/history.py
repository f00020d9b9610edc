"""
The use of each Pod over time, since the page was opened.

Its memory is bounded: a ring of samples for each Pod, and at most POD_LIMIT Pods. Knows neither clock nor cluster.
"""

import math
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

SAMPLE_LIMIT: Final = 720
"""Samples that are kept: an hour, where one is taken every five seconds."""
POD_LIMIT: Final = 20_000
"""Pods that are remembered, 3 KiB each. Those seen later have no history."""

UNKNOWN: Final = math.nan


@dataclass(frozen=True, slots=True)
class Series:
    """Use over time."""

    times: tuple[float, ...]
    """Seconds since 1970, ascending."""
    used_mib: tuple[float | None, ...]
    """One a time; None where nothing measured it."""
    source: str
    """A few words for people: where this comes from."""


class History:
    """A ring of samples."""

    def __init__(self, samples: int = SAMPLE_LIMIT, pods: int = POD_LIMIT) -> None:
        self._times = array("d", [UNKNOWN]) * samples
        self._used: dict[str, array[float]] = {}
        self._pod_limit = pods
        self._count = 0

    def record(self, now: float, used_mib: Mapping[str, float | None]) -> None:
        """Add a sample: what each Pod, by `namespace/name`, uses *now*."""
        size = len(self._times)
        slot = self._count % size
        self._times[slot] = now
        for pod in [pod for pod in self._used if pod not in used_mib]:
            self._used[pod][slot] = UNKNOWN
            if self._count % size == 0 and all(map(math.isnan, self._used[pod])):
                del self._used[pod]
        for pod, used in used_mib.items():
            ring = self._used.get(pod)
            if ring is None:
                if len(self._used) >= self._pod_limit:
                    continue
                ring = self._used[pod] = array("f", [UNKNOWN]) * size
            ring[slot] = UNKNOWN if used is None else used
        self._count += 1

    def of(self, pod: str) -> Series:
        """Return the samples of *pod* from its first known one on; none if it has none."""
        ring = self._used.get(pod)
        size = len(self._times)
        order = [number % size for number in range(max(0, self._count - size), self._count)] if ring else []
        while ring and order and math.isnan(ring[order[0]]):
            order.pop(0)
        used = tuple(None if ring is None or math.isnan(ring[slot]) else round(ring[slot], 1) for slot in order)
        return Series(tuple(self._times[slot] for slot in order), used, "since this page was opened")
