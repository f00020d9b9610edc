"""
What the page asks of a cluster, and when.

Owns the last answers, which several browser windows share, and the history that pictures leave behind. Nothing is asked
while nobody looks. Neighbours: `server` calls this, the command `ui` has the `Cluster`.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hamicommon.errors import HamiError
from kubectl_hami.page.history import History, Series, Use

Json = Any
REFRESH_SECONDS = 5.0
"""How old an answer may be before it is read again."""
REST_SHARE = 9
"""After an answer, the pause until the next is this many times the seconds that reading it took."""


class Cluster(Protocol):
    """What the page reads, in JSON forms. Each method may raise HamiError with a sentence for people, and may block."""

    def read_picture(self) -> Mapping[str, Json]:
        """Return the picture."""

    def read_explanation(self, namespace: str, name: str) -> Mapping[str, Json]:
        """Return the scheduler's report about a Pod."""

    def read_events(self, namespace: str, name: str) -> Sequence[Mapping[str, Json]]:
        """Return the Events about a Pod, newest first, each with `at`, `type`, `reason`, `message` and `count`."""

    def read_doctor(self) -> Mapping[str, Json]:
        """Return `checks`, each with `name`, `health`, `found` and `fix`; and `problems`."""

    def read_grants(self) -> Mapping[str, Json]:
        """Return `grants`, each with `node`, `index`, `share`, `verdict` and `why`."""

    def read_usage(self, of: str, span: str) -> Mapping[str, Json]:
        """
        Return `usage`, the device-hours of `namespaces`, `pods` or `models`; and `problems`.

        span   such as `24h`; "" is since counting began
        `spans` has those that can be asked.
        """

    def read_simulation(self, manifest: str, namespace: str, nodes: Sequence[str]) -> Mapping[str, Json]:
        """
        Return `reports`, the scheduler's about each Pod that *manifest* would create.

        namespace   of Pods that name none; "" is that of the context
        nodes       to imagine, such as `2x8 NVIDIA-L40S:49140`
        """


@dataclass(slots=True)
class _Kept:
    """An answer that several browser windows share."""

    reading: threading.Lock = field(default_factory=threading.Lock)
    """Held while it is read, which may take long."""
    body: bytes = b""
    due_at: float = -1e18
    """When it is to be read again."""


@dataclass(slots=True)
class Questions:
    """The questions of the page, and when their answers are read again."""

    cluster: Cluster
    read_history: Callable[[str, str, float], Series] | None = None
    """Returns the use of a Pod over time; None if there is no other source than the pictures."""
    clock: Callable[[], float] = time.time
    refresh_seconds: float = REFRESH_SECONDS
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the history, or the list of answers, is read or changed."""
    _history: History = field(default_factory=History)
    _answers: dict[str, _Kept] = field(default_factory=dict)
    _granted: dict[str, tuple[int, int]] = field(default_factory=dict)
    """MiB and percent, by Pod."""

    def picture(self) -> bytes:
        """Return the picture as JSON. Raises: HamiError."""
        return self._fresh("picture", self._read_picture)

    def doctor(self) -> bytes:
        """Return the checks as JSON. Raises: HamiError."""
        return self._fresh("doctor", self.cluster.read_doctor)

    def grants(self) -> bytes:
        """Return what was promised and what is real, as JSON. Raises: HamiError."""
        return self._fresh("grants", self.cluster.read_grants)

    def usage(self, of: str, span: str) -> bytes:
        """Return the device-hours as JSON. Raises: HamiError."""
        return self._fresh(f"usage {of} {span}", lambda: self.cluster.read_usage(of, span))

    def simulation(self, manifest: str, namespace: str, nodes: Sequence[str]) -> bytes:
        """Return, as JSON, what new Pods would get. Raises: HamiError."""
        return json.dumps(self.cluster.read_simulation(manifest, namespace, nodes)).encode()

    def _fresh(self, name: str, read: Callable[[], Mapping[str, Json]]) -> bytes:
        """Return the answer *name* as JSON, read again if it is due."""
        with self._lock:
            kept = self._answers.setdefault(name, _Kept())
        with kept.reading:
            began = self.clock()
            if began >= kept.due_at:
                found = read()
                rest = max(self.refresh_seconds, REST_SHARE * (self.clock() - began))
                kept.body = json.dumps({**found, "refreshSeconds": rest}).encode()
                kept.due_at = self.clock() + rest
            return kept.body

    def _read_picture(self) -> Mapping[str, Json]:
        began = self.clock()
        found = self.cluster.read_picture()
        self._keep(found, began)
        return found

    def story(self, namespace: str, name: str) -> bytes:
        """Return, as JSON, what is known of one Pod: the report, the Events, the history, and what failed."""
        told: dict[str, Json] = {"explanation": None, "events": [], "history": None}
        try:
            told["explanation"] = self.cluster.read_explanation(namespace, name)
        except HamiError as error:
            told["explanationProblem"] = str(error)
        try:
            told["events"] = self.cluster.read_events(namespace, name)
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
