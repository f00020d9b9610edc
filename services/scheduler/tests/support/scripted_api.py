"""
An API server that a test controls step by step: objects, undelivered events, and Bindings in flight.

Like kube-apiserver it checks UID and resourceVersion of a Binding, refuses one for a bound Pod, and writes its
annotations. Events of one object arrive in order, those of different objects in any order. Time stands still.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

from hami_scheduler.bind.plan import BindPlan
from hami_scheduler.errors import ApiConflictError, ApiRefusedError, ApiUnknownError
from hamicommon.model import Object

ANSWERS = ("done", "refused", "conflict", "lost", "late", "open")
"""
What becomes of a Binding: it is made; refused; refused as a conflict though nothing else happened; it and its answer
get lost; only its answer does; its answer does, and it is made some time later, if at all.
"""


@dataclass
class Writing:
    """A Binding that has been sent."""

    plan: BindPlan
    version: str
    answer: "asyncio.Future[str]"


@dataclass
class ScriptedApi:
    """Objects by kind and key, and what is between them and the scheduler."""

    objects: dict[str, dict[str, Object]] = field(default_factory=lambda: {"pods": {}, "nodes": {}, "quotas": {}})
    untold: list[tuple[str, str, Object]] = field(default_factory=list)
    """Kind, `put` or `drop`, and object: the events that have not been delivered, oldest first."""
    writing: list[Writing] = field(default_factory=list)
    on_their_way: list[tuple[BindPlan, str]] = field(default_factory=list)
    """Bindings nobody waits for any more that may still be made."""
    is_away: bool = False
    """Whether reads are not answered."""
    is_read_only: bool = False
    """Whether fences are not answered."""
    calls: int = 0
    """Requests in all."""
    _version: int = 0

    def put(self, kind: str, item: Object) -> None:
        """Create or change an object."""
        self._version += 1
        item["metadata"]["resourceVersion"] = str(self._version)
        self.objects[kind][_key(item)] = item
        self.untold.append((kind, "put", copy.deepcopy(item)))

    def remove(self, kind: str, item: Object) -> None:
        """Delete an object, if it is there."""
        if self.objects[kind].pop(_key(item), None) is not None:
            self.untold.append((kind, "drop", copy.deepcopy(item)))

    def pod(self, uid: str) -> Object | None:
        """Return the Pod *uid*, None where it is gone."""
        return next((pod for pod in self.objects["pods"].values() if pod["metadata"]["uid"] == uid), None)

    def deliverable(self) -> Iterator[int]:
        """Yield the places in `untold` of events before which no other of the same object is."""
        seen = set()
        for place, (kind, _, item) in enumerate(self.untold):
            if (kind, _key(item)) not in seen:
                yield place
            seen.add((kind, _key(item)))

    def listed(self, kind: str) -> list[Object]:
        """Return a list of all objects; undelivered events of the kind are dropped."""
        self.untold = [event for event in self.untold if event[0] != kind]
        return copy.deepcopy(list(self.objects[kind].values()))

    def apply(self, plan: BindPlan, version: str) -> str:
        """Make the Binding of *plan* if it can be made, and return why it cannot."""
        pod = self.objects["pods"].get(f"{plan.namespace}/{plan.name}")
        if pod is None:
            return "not found"
        if pod["metadata"]["uid"] != plan.uid:
            return "Precondition failed: UID"
        if pod["spec"].get("nodeName"):
            return f"is already assigned to node {pod['spec']['nodeName']}"
        if version not in {"", pod["metadata"]["resourceVersion"]}:
            return "Precondition failed: ResourceVersion"
        pod = copy.deepcopy(pod)
        pod["spec"]["nodeName"] = plan.node
        pod["metadata"]["annotations"].update(plan.annotations)
        self.put("pods", pod)
        return ""

    # What the verbs call

    async def bind(self, plan: BindPlan, version: str) -> None:
        """Send the Binding, and wait for what becomes of it."""
        self.calls += 1
        writing = Writing(plan, version, asyncio.get_running_loop().create_future())
        self.writing.append(writing)
        answer = await writing.answer
        if answer == "refused":
            raise ApiRefusedError("forbidden")
        if answer == "conflict":
            raise ApiConflictError("the object has been modified")
        if answer == "open":
            self.on_their_way.append((plan, version))
        problem = self.apply(plan, version) if answer in {"done", "late"} else ""
        if answer != "done":
            raise ApiUnknownError("no answer")
        if problem:
            raise ApiConflictError(problem)

    async def read_pod(self, namespace: str, name: str) -> Object | None:
        """Return a Pod as it is."""
        self.calls += 1
        if self.is_away:
            raise ApiUnknownError("no answer")
        return copy.deepcopy(self.objects["pods"].get(f"{namespace}/{name}"))

    async def mark_pod(self, uid: str, namespace: str, name: str, mark: str) -> Object:
        """Set a condition of a Pod."""
        self.calls += 1
        if self.is_away or self.is_read_only:
            raise ApiUnknownError("no answer")
        pod = self.objects["pods"].get(f"{namespace}/{name}")
        if pod is None or pod["metadata"]["uid"] != uid:
            raise ApiRefusedError("not found")
        pod = copy.deepcopy(pod)
        pod["status"]["conditions"] = [{"type": "hami.io/scheduler-term", "message": mark}]
        self.put("pods", pod)
        return copy.deepcopy(pod)

    async def pods(self) -> AsyncIterator[Object]:
        """Yield every Pod that has not ended."""
        self.calls += 1
        for pod in copy.deepcopy(list(self.objects["pods"].values())):
            if pod["status"]["phase"] not in {"Succeeded", "Failed"}:
                yield pod

    async def wake_pod(self, _uid: str, _namespace: str, _name: str) -> None:
        """Count it; the state machine decides when a Pod is asked about."""
        self.calls += 1

    async def label_pod(self, _uid: str, _namespace: str, _name: str, _label: tuple[str, str]) -> None:
        """Count it."""
        self.calls += 1

    def queue_event(self, *_arguments: Any, **_keywords: Any) -> None:
        """Take no notice of Events."""


def _key(item: Object) -> str:
    metadata = item["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else str(metadata["name"])
