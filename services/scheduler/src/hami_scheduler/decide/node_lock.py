"""
Decide who gets the lock of a Node, and who may release it.

The caller writes on the condition that the annotation still has the value it read.
Neighbours: `bind_plan` says which locks a Pod needs, `serve.locking` reads and writes, `hamicommon.wire.node_lock` has
the format.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/nodelock/nodelock.go
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Final

from hamicommon.model import Moment, NodeLock
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.go.times import format_rfc3339
from hamicommon.wire.node_lock import decode_node_lock, encode_node_lock

TIMEOUT: Final = timedelta(minutes=5)
"""After this time a lock expires."""


@dataclass(frozen=True, slots=True, order=True)
class Lock:
    """A lock of a Node."""

    key: str
    """Its annotation."""
    seconds: int = 0
    """After how many seconds a lock without owner expires; 0 for a lock with owner."""


class LockAction(Enum):
    """What to do to get a lock."""

    TAKE = "take"
    """Replace the value that was read with the plan's value."""
    HELD = "held"
    """Continue: this Pod already holds the lock."""
    ASK_OWNER = "ask owner"
    """Check whether the Pod that holds the lock still exists, then plan again."""
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
    owner_exists: bool | None = None,
    first_seen: datetime | None = None,
    names_owner: bool = True,
) -> LockPlan:
    """
    Decide how the Pod *namespace*/*pod* gets the lock with the annotation *value* (None: no annotation).

    *owner_exists* answers an earlier ASK_OWNER. A malformed value has no time. It expires *timeout* after *first_seen*,
    when this process first read the value; in HAMi it never expires. Without *names_owner* the value to write is the
    time.

    >>> from datetime import UTC
    >>> noon = datetime(2026, 8, 21, 12, tzinfo=UTC)
    >>> plan_lock(None, "default", "train-0", now=noon).value
    '2026-08-21T12:00:00Z,default,train-0'
    >>> plan_lock("2026-08-21T11:59:00Z,default,other", "default", "train-0", now=noon).action
    <LockAction.ASK_OWNER: 'ask owner'>
    """
    time = Moment.of(now.replace(microsecond=0))
    mine = encode_node_lock(NodeLock(time, namespace, pod) if names_owner else NodeLock(time))
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
        if owner_exists is None:
            return LockPlan(LockAction.ASK_OWNER, f"Pod {lock.namespace}/{lock.pod} holds the lock", owner=lock)
        if not owner_exists:
            return LockPlan(LockAction.TAKE, f"Pod {lock.namespace}/{lock.pod}, its owner, is gone", mine, lock)
    return LockPlan(LockAction.WAIT, f"the lock is held since {format_rfc3339(lock.time)}", owner=lock)


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
