"""
What the page asks of a cluster, and when.

Owns the last picture, which several browser windows share, and the history that pictures leave behind. Nothing is asked
while nobody looks. Neighbours: `server` calls this, the command `ui` gives it the functions that read.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hamicommon.errors import HamiError
from kubectl_hami.page.history import History, Series, Use

Json = Any
REFRESH_SECONDS = 5.0
"""How old a picture may be before it is read again."""
REST_SHARE = 9
"""After a picture, the pause until the next is this many times the seconds that reading it took."""


@dataclass(slots=True)
class Questions:
    """The questions of the page. Each function may raise HamiError with a sentence for people, and may block."""

    read_picture: Callable[[], Mapping[str, Json]]
    """Returns the picture in its JSON form."""
    read_explanation: Callable[[str, str], Mapping[str, Json]]
    """Returns the scheduler's report about the Pod of a namespace and a name."""
    read_events: Callable[[str, str], Sequence[Mapping[str, Json]]]
    """Returns the Events about a Pod, newest first, each with `at`, `type`, `reason`, `message` and `count`."""
    read_history: Callable[[str, str, float], Series] | None = None
    """Returns the use of a Pod over time; None if there is no other source than the pictures."""
    clock: Callable[[], float] = time.time
    refresh_seconds: float = REFRESH_SECONDS
    _reading: threading.Lock = field(default_factory=threading.Lock)
    """Held while a picture is read, which may take long."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the history is read or changed."""
    _history: History = field(default_factory=History)
    _picture: bytes = b""
    _due_at: float = -1e18
    """When the picture is to be read again."""
    _granted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """MiB and percent, by Pod."""

    def picture(self) -> bytes:
        """Return the picture as JSON, read again if it is due. Raises: HamiError."""
        with self._reading:
            began = self.clock()
            if began >= self._due_at:
                found = self.read_picture()
                rest = max(self.refresh_seconds, REST_SHARE * (self.clock() - began))
                self._keep(found, began)
                self._picture = json.dumps({**found, "refreshSeconds": rest}).encode()
                self._due_at = self.clock() + rest
            return self._picture

    def story(self, namespace: str, name: str) -> bytes:
        """Return, as JSON, what is known of one Pod: the report, the Events, the history, and what failed."""
        told: dict[str, Json] = {"explanation": None, "events": [], "history": None}
        try:
            told["explanation"] = self.read_explanation(namespace, name)
        except HamiError as error:
            told["explanationProblem"] = str(error)
        try:
            told["events"] = self.read_events(namespace, name)
        except HamiError as error:
            told["eventsProblem"] = str(error)
        try:
            told["history"] = self._shape(f"{namespace}/{name}", self._series(namespace, name))
        except HamiError as error:
            told["historyProblem"] = str(error)
        return json.dumps(told).encode()

    def _series(self, namespace: str, name: str) -> Series:
        if self.read_history is not None:
            return self.read_history(namespace, name, self.clock())
        with self._lock:
            return self._history.of(f"{namespace}/{name}")

    def _shape(self, pod: str, series: Series) -> Json:
        granted_mib, granted_percent = self._granted.get(pod, (0, 0))
        return {
            "times": series.times,
            "usedMib": [use.memory_mib for use in series.uses],
            "usedPercent": [use.core_percent for use in series.uses],
            "grantedMib": granted_mib,
            "grantedPercent": granted_percent,
            "source": series.source,
        }

    def _keep(self, picture: Mapping[str, Json], now: float) -> None:
        """Add what each Pod uses to the history."""
        shares: dict[str, list[Mapping[str, Json]]] = {}
        for device in (device for node in picture["nodes"] for device in node["devices"]):
            for share in device["shares"]:
                if share["holds"]:
                    shares.setdefault(f"{share['namespace']}/{share['pod']}", []).append(share)
        self._granted = {
            pod: (sum(one["memoryMib"] for one in held), sum(one["corePercent"] for one in held))
            for pod, held in shares.items()
        }
        uses = {pod: Use(_sum(held, "usedMemoryMib"), _sum(held, "usedCorePercent")) for pod, held in shares.items()}
        with self._lock:
            self._history.record(now, uses)


def _sum(shares: Sequence[Mapping[str, Json]], name: str) -> float | None:
    """Return the sum of a measurement over *shares*, None if nothing measured any."""
    known = [float(share[name]) for share in shares if share[name] is not None]
    return sum(known) if known else None
