"""
The use of each Pod and each device over time, since the page was opened.

Its memory is bounded: two rings of samples for each name, and at most NAMES_LIMIT names. Knows no clock and no cluster.
"""

import math
import threading
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import Any, Final, NamedTuple

SAMPLE_LIMIT: Final = 720
"""Samples that are kept: an hour, at one every five seconds."""
NAMES_LIMIT: Final = 10_000
"""Pods, and devices, that are remembered, 6 KiB each. Those seen later have no history."""

_UNKNOWN: Final = math.nan


class Use(NamedTuple):
    """What a Pod, over all its shares, or a device uses at one moment; None if it was not measured."""

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


SINCE_OPENED: Final = "since this page was opened"


def combined(each: Collection[Series]) -> Series:
    """Return the use of several devices together: the sum of their memory, and the mean of their device time."""
    uses: dict[float, list[Use]] = {}
    for series in each:
        for time, use in zip(series.times, series.uses, strict=True):
            uses.setdefault(time, []).append(use)
    times = tuple(sorted(uses))
    return Series(times, tuple(map(_together, (uses[time] for time in times))), next((s.source for s in each), ""))


def _together(uses: Sequence[Use]) -> Use:
    memory_mib = [use.memory_mib for use in uses if use.memory_mib is not None]
    percents = [use.core_percent for use in uses if use.core_percent is not None]
    return Use(sum(memory_mib) if memory_mib else None, round(sum(percents) / len(percents), 1) if percents else None)


class PictureHistory:
    """What pictures have shown of Pods and devices. Safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods = History()
        self._devices = History()
        self._places: dict[str, list[str]] = {}
        """The devices of each Node, in the last picture."""

    def keep(self, picture: Mapping[str, Any], now: float) -> None:
        """Remember what each Pod and each device uses in the JSON form *picture*."""
        devices = [device for node in picture["nodes"] for device in node["devices"]]
        shares: dict[str, list[Mapping[str, Any]]] = {}
        for share in (share for device in devices for share in device["shares"] if share["holds"]):
            shares.setdefault(f"{share['namespace']}/{share['pod']}", []).append(share)
        pods = {name: Use(_sum(held, "usedMemoryMib"), _sum(held, "usedCorePercent")) for name, held in shares.items()}
        uses = {device["id"]: Use(device["usedMemoryMib"], device["usedCorePercent"]) for device in devices}
        with self._lock:
            self._places = {node["name"]: [device["id"] for device in node["devices"]] for node in picture["nodes"]}
            self._pods.record(now, pods)
            self._devices.record(now, uses)

    def pod(self, namespace: str, name: str, now: float) -> Series:
        """Return the use of a Pod up to *now*."""
        with self._lock:
            return self._pods.of(f"{namespace}/{name}")

    def devices(self, node: str, now: float) -> Mapping[str, Series]:
        """Return the use of each device of a Node up to *now*, by UUID."""
        with self._lock:
            return {name: self._devices.of(name) for name in self._places.get(node, ())}


def _sum(shares: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the sum of a measurement over *shares*, None if nothing measured any."""
    known = [float(share[name]) for share in shares if share[name] is not None]
    return sum(known) if known else None


class History:
    """A ring of samples."""

    def __init__(self, samples: int = SAMPLE_LIMIT, names: int = NAMES_LIMIT) -> None:
        self._times = array("d", [_UNKNOWN]) * samples
        self._uses: dict[str, tuple[array[float], array[float]]] = {}
        self._limit = names
        self._count = 0

    def record(self, now: float, uses: Mapping[str, Use]) -> None:
        """Add a sample: what each Pod or device, by its name, uses *now*."""
        size = len(self._times)
        slot = self._count % size
        self._times[slot] = now
        if slot == 0:
            self._forget()
        for name in self._uses.keys() - uses.keys():
            self._put(name, slot, Use(None, None))
        for name, use in uses.items():
            if name not in self._uses and len(self._uses) < self._limit:
                self._uses[name] = array("f", [_UNKNOWN]) * size, array("f", [_UNKNOWN]) * size
            if name in self._uses:
                self._put(name, slot, use)
        self._count += 1

    def of(self, name: str) -> Series:
        """Return the samples of *name* from its first known one on; none if it has none."""
        found: list[tuple[float, Use]] = []
        if name in self._uses:
            size = len(self._times)
            order = (number % size for number in range(max(0, self._count - size), self._count))
            rings = self._uses[name]
            found = [(self._times[slot], Use(*(_known(ring[slot]) for ring in rings))) for slot in order]
        kept = list(dropwhile(lambda sample: sample[1] == (None, None), found))
        return Series(tuple(time for time, _ in kept), tuple(use for _, use in kept), SINCE_OPENED)

    def _put(self, name: str, slot: int, use: Use) -> None:
        for ring, value in zip(self._uses[name], use, strict=True):
            ring[slot] = _UNKNOWN if value is None else value

    def _forget(self) -> None:
        """Forget the names without a sample."""
        gone = [
            name for name, rings in self._uses.items() if all(math.isnan(value) for ring in rings for value in ring)
        ]
        for name in gone:
            del self._uses[name]


def _known(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 1)
