"""
The queue of Pods to schedule, and of rejected Pods that wait.

Owns the active queue, the two back-off queues and the Pods that wait for an event. The time is an argument, in
monotonic seconds.
Source: k8s.io/kubernetes/pkg/scheduler/backend/queue (1.34, SchedulerPopFromBackoffQ on, queueing hints locked on).
"""

import heapq
import itertools
import math
from dataclasses import dataclass, field
from enum import StrEnum

from hamicommon.model import Object
from minicluster.kubescheduler.fit import (
    PLUGIN_AFFINITY,
    PLUGIN_EXTENDER,
    PLUGIN_RESOURCES,
    PLUGIN_TAINTS,
    PLUGIN_UNSCHEDULABLE,
)

Key = tuple[str, str]


class Event(StrEnum):
    """A change that may make a rejected Pod fit."""

    NODE_ADDED = "NodeAdd"
    NODE_ALLOCATABLE = "NodeAllocatableChange"
    NODE_LABELS = "NodeLabelChange"
    NODE_TAINTS = "NodeTaintChange"
    NODE_CONDITIONS = "NodeConditionChange"
    NODE_ANNOTATIONS = "NodeAnnotationChange"
    ASSIGNED_POD_ADDED = "AssignedPodAdd"
    ASSIGNED_POD_UPDATED = "AssignedPodUpdate"
    ASSIGNED_POD_DELETED = "AssignedPodDelete"
    OWN_CHANGE = "UnscheduledPodUpdate"
    OWN_TOLERATIONS = "UnscheduledPodTolerationsChange"


HINTS: dict[str, frozenset[Event]] = {
    PLUGIN_EXTENDER: frozenset(Event),
    PLUGIN_RESOURCES: frozenset({Event.NODE_ADDED, Event.NODE_ALLOCATABLE, Event.ASSIGNED_POD_DELETED}),
    PLUGIN_AFFINITY: frozenset({Event.NODE_ADDED, Event.NODE_LABELS}),
    PLUGIN_TAINTS: frozenset({Event.NODE_ADDED, Event.NODE_TAINTS, Event.OWN_TOLERATIONS}),
    PLUGIN_UNSCHEDULABLE: frozenset({Event.NODE_ADDED, Event.NODE_TAINTS, Event.OWN_TOLERATIONS}),
}
"""By plugin, the events that wake a Pod that it rejected. Every event wakes a Pod that an extender rejected."""

UNSCHEDULABLE_SECONDS = 300.0
"""The longest wait of a rejected Pod without an event."""
FLUSH_UNSCHEDULABLE_SECONDS = 30.0
FLUSH_BACKOFF_SECONDS = 1.0
"""The interval at which waiting Pods are checked. Delays are rounded up to it."""


@dataclass(slots=True)
class QueuedPod:
    """A Pod without a Node."""

    key: Key
    pod: Object
    refusals: int = 0
    errors: int = 0
    blocked_by: frozenset[str] = frozenset()
    """The plugins that rejected it last."""
    waiting_since: float = 0.0
    state: str = "new"
    seen: set[Event] = field(default_factory=set)
    """The events during its present attempt."""

    @property
    def uid(self) -> str:
        """The Pod's uid."""
        return str(self.pod["metadata"]["uid"])

    @property
    def priority(self) -> int:
        """The Pod's priority."""
        return int(self.pod["spec"].get("priority") or 0)


class Queue:
    """All Pods without a Node, each in exactly one state: active, backoff, error, waiting or trying."""

    def __init__(self, initial_seconds: float, max_seconds: float, now: float) -> None:
        self.pods: dict[Key, QueuedPod] = {}
        self._initial_seconds = initial_seconds
        self._max_seconds = max_seconds
        self._started = now
        self._next_unschedulable_flush = now + FLUSH_UNSCHEDULABLE_SECONDS
        self._order = itertools.count()
        self._noticing: dict[Key, QueuedPod] = {}
        """The Pods that events concern: they wait, or are being tried."""
        self._active: list[tuple[int, float, int, QueuedPod]] = []
        self._backoff: list[tuple[float, int, QueuedPod]] = []
        self._errors: list[tuple[float, int, QueuedPod]] = []

    def add(self, key: Key, pod: Object, now: float) -> None:
        """Add a new Pod."""
        queued = QueuedPod(key, pod)
        self.pods[key] = queued
        self._activate(queued, now)

    def update(self, key: Key, pod: Object, now: float) -> None:
        """Set a new version of a Pod. A change of the Pod itself is an event."""
        queued = self.pods[key]
        old, queued.pod = queued.pod, pod
        changed_tolerations = old["spec"].get("tolerations") != pod["spec"].get("tolerations")
        self._notice(queued, Event.OWN_TOLERATIONS if changed_tolerations else Event.OWN_CHANGE, now)

    def remove(self, key: Key) -> None:
        """Remove a Pod that is gone or bound."""
        self._noticing.pop(key, None)
        queued = self.pods.pop(key, None)
        if queued is not None:
            queued.state = "gone"

    def happened(self, event: Event, now: float) -> None:
        """Wake every rejected Pod that *event* may help."""
        for queued in list(self._noticing.values()):
            self._notice(queued, event, now)

    def _notice(self, queued: QueuedPod, event: Event, now: float) -> None:
        if queued.state == "trying":
            queued.seen.add(event)
        elif queued.state == "waiting" and _helps(event, queued):
            self._wake(queued, now)

    def _wake(self, queued: QueuedPod, now: float) -> None:
        self._noticing.pop(queued.key, None)
        due = queued.waiting_since + self._delay(queued.refusals)
        if due <= now:
            self._activate(queued, now)
        else:
            queued.state = "backoff"
            heapq.heappush(self._backoff, (due, next(self._order), queued))

    def _activate(self, queued: QueuedPod, now: float) -> None:
        queued.state = "active"
        heapq.heappush(self._active, (-queued.priority, now, next(self._order), queued))

    def _delay(self, failures: int) -> float:
        return min(self._initial_seconds * 2.0 ** max(0, min(failures, 60) - 1), self._max_seconds)

    def pop(self, now: float) -> QueuedPod | None:
        """Return the next Pod to try. Rejected Pods in back-off follow after all others."""
        self._flush(now)
        while self._active:
            queued = heapq.heappop(self._active)[-1]
            if queued.state == "active" and self.pods.get(queued.key) is queued:
                return self._try(queued)
        while self._backoff:
            queued = heapq.heappop(self._backoff)[-1]
            if queued.state == "backoff" and self.pods.get(queued.key) is queued:
                return self._try(queued)
        return None

    def _try(self, queued: QueuedPod) -> QueuedPod:
        queued.state = "trying"
        queued.seen.clear()
        self._noticing[queued.key] = queued
        return queued

    def refused(self, queued: QueuedPod, plugins: frozenset[str], now: float) -> None:
        """Put back a Pod that fits no Node. An event during the attempt may wake it at once."""
        if self.pods.get(queued.key) is not queued:
            return
        queued.refusals += 1
        queued.errors = 0
        queued.blocked_by = plugins
        queued.waiting_since = now
        queued.state = "waiting"
        if any(_helps(event, queued) for event in queued.seen):
            self._wake(queued, now)

    def failed(self, queued: QueuedPod, now: float) -> None:
        """Put back a Pod whose attempt failed. It waits for its back-off, whatever happens."""
        if self.pods.get(queued.key) is not queued:
            return
        queued.errors += 1
        queued.state = "error"
        self._noticing.pop(queued.key, None)
        due = self._tick(now + self._delay(queued.errors))
        heapq.heappush(self._errors, (due, next(self._order), queued))

    def _tick(self, moment: float) -> float:
        """Return the first check of waiting Pods at or after *moment*."""
        ticks = math.ceil((moment - self._started) / FLUSH_BACKOFF_SECONDS)
        return self._started + ticks * FLUSH_BACKOFF_SECONDS

    def _flush(self, now: float) -> None:
        for heap, state in ((self._backoff, "backoff"), (self._errors, "error")):
            while heap and heap[0][0] <= now:
                queued = heapq.heappop(heap)[-1]
                if queued.state == state and self.pods.get(queued.key) is queued:
                    self._activate(queued, now)
        if now >= self._next_unschedulable_flush:
            self._next_unschedulable_flush = now + FLUSH_UNSCHEDULABLE_SECONDS
            for queued in list(self.pods.values()):
                if queued.state == "waiting" and now - queued.waiting_since > UNSCHEDULABLE_SECONDS:
                    self._wake(queued, now)

    def next_due(self, now: float) -> float:
        """Return the seconds until `pop` may return a Pod without another event."""
        due = min([heap[0][0] for heap in (self._backoff, self._errors) if heap] + [self._next_unschedulable_flush])
        return max(0.0, due - now)


def _helps(event: Event, queued: QueuedPod) -> bool:
    return any(event in HINTS[plugin] for plugin in queued.blocked_by)
