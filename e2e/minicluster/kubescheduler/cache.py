"""
The scheduler's cache of Nodes and of the Pods on them.

Owns the states of Nodes, the Pods that are assumed on a Node before the API confirms it, and the event of each change.
Must never call the API.
Source: k8s.io/kubernetes/pkg/scheduler/backend/cache/cache.go, pkg/scheduler/framework/events.go
(nodeSchedulingPropertiesChange).
"""

from dataclasses import dataclass

from hamicommon.model import Object
from minicluster.kubescheduler.fit import NodeState, node_state, pod_facts
from minicluster.kubescheduler.queue import Event, Key

ENDED = ("Succeeded", "Failed")


@dataclass(slots=True)
class _Placed:
    uid: str
    node: str
    requests: dict[str, int]
    is_assumed: bool


class Cache:
    """The Nodes, with the use of their Pods."""

    def __init__(self, ignored: frozenset[str]) -> None:
        self.nodes: dict[str, NodeState] = {}
        self._ignored = ignored
        self._placed: dict[Key, _Placed] = {}
        self._by_node: dict[str, set[Key]] = {}

    def node_changed(self, old: Object | None, new: Object | None) -> list[Event]:
        """Apply a change of a Node, and return its events."""
        if new is None:
            if old is not None:
                self.nodes.pop(old["metadata"]["name"], None)
            return []
        state = node_state(new)
        before = self.nodes.get(state.name)
        if before is None:
            for key in self._by_node.get(state.name, ()):
                _count(state, self._placed[key].requests, 1)
        else:
            state.used, state.pods = before.used, before.pods
        self.nodes[state.name] = state
        return [Event.NODE_ADDED] if before is None else _node_events(before, state)

    def pod_changed(self, key: Key, new: Object | None) -> None:
        """Apply a change of a Pod, which counts on its Node until it ends."""
        if new is not None and new["spec"].get("nodeName") and (new.get("status") or {}).get("phase") not in ENDED:
            self._place(key, new, new["spec"]["nodeName"], is_assumed=False)
        else:
            placed = self._placed.get(key)
            if placed is not None and (new is None or not placed.is_assumed or new["metadata"]["uid"] != placed.uid):
                self._lift(key)

    def assume(self, key: Key, pod: Object, node: str) -> None:
        """Count *pod* on *node* before it is bound."""
        self._place(key, pod, node, is_assumed=True)

    def forget(self, key: Key, uid: str) -> None:
        """Remove an assumed Pod, unless the API has confirmed it."""
        placed = self._placed.get(key)
        if placed is not None and placed.is_assumed and placed.uid == uid:
            self._lift(key)

    def _place(self, key: Key, pod: Object, node: str, is_assumed: bool) -> None:
        placed, uid = self._placed.get(key), pod["metadata"]["uid"]
        if placed is not None:
            if placed.uid == uid and placed.node == node:
                placed.is_assumed = placed.is_assumed and is_assumed
                return
            self._lift(key)
        requests = pod_facts(pod, self._ignored).requests
        self._placed[key] = _Placed(uid, node, requests, is_assumed)
        self._by_node.setdefault(node, set()).add(key)
        if node in self.nodes:
            _count(self.nodes[node], requests, 1)

    def _lift(self, key: Key) -> None:
        placed = self._placed.pop(key)
        self._by_node[placed.node].discard(key)
        if placed.node in self.nodes:
            _count(self.nodes[placed.node], placed.requests, -1)


def _count(state: NodeState, requests: dict[str, int], sign: int) -> None:
    state.pods += sign
    for name, amount in requests.items():
        state.used[name] = state.used.get(name, 0) + sign * amount


def _node_events(old: NodeState, new: NodeState) -> list[Event]:
    """Return the events of a change. A heartbeat has none."""
    events = []
    if old.allocatable != new.allocatable:
        events.append(Event.NODE_ALLOCATABLE)
    if old.labels != new.labels:
        events.append(Event.NODE_LABELS)
    if old.taints != new.taints or old.is_unschedulable != new.is_unschedulable:
        events.append(Event.NODE_TAINTS)
    if _condition_states(old.node) != _condition_states(new.node):
        events.append(Event.NODE_CONDITIONS)
    if (old.node["metadata"].get("annotations") or {}) != (new.node["metadata"].get("annotations") or {}):
        events.append(Event.NODE_ANNOTATIONS)
    return events


def _condition_states(node: Object) -> dict[str, str]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return {condition["type"]: condition["status"] for condition in conditions}
