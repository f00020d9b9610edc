"""
What the page asks of a cluster, and when.

Owns the last answers, which several browser windows share. Nothing is asked
while nobody looks. Neighbours: `server` calls this, the command `ui` has the `Cluster`.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hamicommon.errors import HamiError
from kubectl_hami.page.history import PictureHistory, Series, combined

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


class Past(Protocol):
    """Where the use over time comes from. Each method may raise HamiError, and may block."""

    def pod(self, namespace: str, name: str, now: float) -> Series:
        """Return the use of a Pod up to *now*."""

    def devices(self, node: str, now: float) -> Mapping[str, Series]:
        """Return the use of each device of a Node up to *now*, by UUID."""


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
    past: Past | None = None
    """None if there is no other source than the pictures."""
    clock: Callable[[], float] = time.time
    refresh_seconds: float = REFRESH_SECONDS
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while the list of answers is read or changed."""
    _answers: dict[str, _Kept] = field(default_factory=dict)
    _seen: PictureHistory = field(default_factory=PictureHistory)

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
        if self.past is None:
            self._seen.keep(found, began)
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
            told["history"] = _curve((self.past or self._seen).pod(namespace, name, self.clock()))
        except HamiError as error:
            told["historyProblem"] = str(error)
        return json.dumps(told).encode()

    def node(self, name: str) -> bytes:
        """Return, as JSON, the use over time of a Node and, by UUID, of its devices. Raises: HamiError."""
        devices = (self.past or self._seen).devices(name, self.clock())
        curves = {uuid: _curve(series) for uuid, series in devices.items()}
        found = {"history": _curve(combined(devices.values())), "devices": curves}
        return json.dumps({**found, "refreshSeconds": 2 * self.refresh_seconds}).encode()


def _curve(series: Series) -> Json:
    return {
        "times": series.times,
        "usedMib": [use.memory_mib for use in series.uses],
        "usedPercent": [use.core_percent for use in series.uses],
        "source": series.source,
    }
