"""
Decide who gets the lock of a Node, and who may release it.

The caller writes on the condition that the annotation still has the value it read.
Neighbours: `plan` says which locks a Pod needs, `locking` reads and writes, `hamicommon.wire.node_lock` has
the format.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/nodelock/nodelock.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Final

from hamicommon.model import Moment, NodeLock
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.go.times import format_rfc3339
from hamicommon.wire.node_lock import decode_node_lock, encode_node_lock

_SECOND = timedelta(seconds=1)
_ALLOCATED = (keys.BIND_PHASE_SUCCESS, keys.BIND_PHASE_FAILED)
"""The phases in which a device plugin has released the lock, or is about to."""

TIMEOUT: Final = timedelta(minutes=5)
"""After this time a lock expires."""


@dataclass(frozen=True, slots=True, order=True)
class Lock:
    """A lock of a Node."""

    key: str
    """Its annotation."""
    seconds: int = 0
    """After how many seconds a lock without owner expires; 0 for a lock with owner."""


class Owner(Enum):
    """What a lock is still needed for, by the Pod that it names."""

    BUSY = "waits for its devices"
    """It is bound to the Node and has not started, or a scheduler of HAMi's is about to bind it."""
    UNBOUND = "is not bound, and only a scheduler of ours can have locked the Node for it"
    GONE = "is gone"
    DONE = "needs no lock any more"
    """It has started, has ended, or is on another Node."""


class LockAction(Enum):
    """What to do to get a lock."""

    TAKE = "take"
    """Replace the value that was read with the plan's value."""
    HELD = "held"
    """Continue: this Pod already holds the lock."""
    ASK_OWNER = "ask owner"
    """Read the Pod that holds the lock, then plan again."""
    WAIT = "wait"
    """Wait: another Pod holds the lock."""


@dataclass(frozen=True, slots=True)
class LockPlan:
    """What to do, why in one sentence, and the value to write if the lock is taken."""

    action: LockAction
    reason: str
    value: str | None = None
    owner: NodeLock | None = None
    """The present lock, if its value can be read."""


def plan_lock(
    value: str | None,
    namespace: str,
    pod: str,
    *,
    now: datetime,
    timeout: timedelta = TIMEOUT,
    owner_state: Owner | None = None,
    first_seen: datetime | None = None,
    names_owner: bool = True,
) -> LockPlan:
    """
    Decide how the Pod *namespace*/*pod* gets the lock with the annotation *value* (None: no annotation).

    *owner_state* answers an earlier ASK_OWNER; an owner that is UNBOUND is one that nobody is binding now. A malformed
    value has no time. It expires *timeout* after *first_seen*, when this process first read the value; in HAMi it never
    expires. Without *names_owner* the value to write is the time.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 8, 21, 12, tzinfo=UTC)
    >>> plan_lock(None, "default", "train-0", now=noon).value
    '2026-08-21T12:00:00Z,default,train-0'
    >>> plan_lock("2026-08-21T11:59:00Z,default,other", "default", "train-0", now=noon).action
    <LockAction.ASK_OWNER: 'ask owner'>
    """
    mine = lock_text(now, namespace, pod, names_owner=names_owner)
    if value is None:
        return LockPlan(LockAction.TAKE, "the lock is free", mine)
    try:
        lock = decode_node_lock(value)
    except DecodeError as error:
        if first_seen is not None and now - first_seen > timeout:
            return LockPlan(LockAction.TAKE, f"the lock is malformed ({error}) and has not changed in {timeout}", mine)
        return LockPlan(LockAction.WAIT, f"the lock is malformed ({error})")
    if lock.time.age(now) > timeout:
        return LockPlan(LockAction.TAKE, f"the lock is older than {timeout}", mine, lock)
    if (lock.namespace, lock.pod) == (namespace, pod):
        return LockPlan(LockAction.HELD, "this Pod holds the lock", owner=lock)
    if lock.namespace and lock.pod:
        if owner_state is None:
            return LockPlan(LockAction.ASK_OWNER, f"Pod {lock.namespace}/{lock.pod} holds the lock", owner=lock)
        if owner_state is not Owner.BUSY:
            why = f"Pod {lock.namespace}/{lock.pod}, its owner, {owner_state.value}"
            return LockPlan(LockAction.TAKE, why, mine, lock)
    return LockPlan(LockAction.WAIT, f"the lock is held since {format_rfc3339(lock.time)}", owner=lock)


def owner_state(pod: Mapping[str, Any] | None, node: str, scheduler_name: str) -> Owner:
    """
    Return what a lock of *node* is needed for by *pod*, a v1 Pod, None if it does not exist.

    *scheduler_name* is that of the Pods we bind, empty if it is not known. HAMi's scheduler names the Node in an
    annotation before it locks it; ours writes nothing to a Pod before its Binding.

    >>> owner_state({"spec": {"nodeName": "n1"}, "status": {"phase": "Running"}}, "n1", "")
    <Owner.DONE: 'needs no lock any more'>
    """
    if pod is None:
        return Owner.GONE
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    spec, phase = pod.get("spec") or {}, annotations.get(keys.BIND_PHASE)
    if spec.get("nodeName"):
        has_started = (pod.get("status") or {}).get("phase") != "Pending" or phase in _ALLOCATED
        return Owner.DONE if has_started or spec["nodeName"] != node else Owner.BUSY
    is_ours = not scheduler_name or spec.get("schedulerName") == scheduler_name
    return Owner.UNBOUND if is_ours and keys.POD_NODE not in annotations and phase is None else Owner.BUSY


def lock_text(now: datetime, namespace: str, pod: str, *, names_owner: bool = True, unlike: str | None = None) -> str:
    """
    Return the annotation of a lock taken *now*, never the text *unlike*, so that writing it changes the Node.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 8, 21, 12, tzinfo=UTC)
    >>> lock_text(noon, "default", "train-0", unlike="2026-08-21T12:00:00Z,default,train-0")
    '2026-08-21T12:00:01Z,default,train-0'
    """
    time = Moment.of(now.replace(microsecond=0))
    text = encode_node_lock(NodeLock(time, namespace, pod) if names_owner else NodeLock(time))
    return lock_text(now + _SECOND, namespace, pod, names_owner=names_owner) if text == unlike else text


def releases(value: str | None, namespace: str, pod: str, *, force: bool = False) -> bool:
    """
    Return whether the Pod *namespace*/*pod* may remove the lock with the annotation *value*.

    Only the owner may remove it, unless *force* is set. Any Pod may remove a lock without owner.

    >>> releases("2026-08-21T12:00:00Z,default,train-0", "default", "train-0")
    True
    >>> releases("2026-08-21T12:00:00Z,default,other", "default", "train-0")
    False
    """
    if value is None:
        return False
    return force or "," not in value or value.endswith(f",{namespace},{pod}")
