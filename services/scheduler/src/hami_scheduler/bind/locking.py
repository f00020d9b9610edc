"""
Take and release node locks, in HAMi's protocol, for Nodes whose device plugin needs them.

Pods that wait for one lock queue up, and only the first reads the Node, or the one that the lock names. Every write is
conditional on the resourceVersion that was read, and a lock of ours is only removed while we lead. A lock whose Pod
needs it no more is removed, no matter who took it. Neighbours: `plan` says which locks are needed, `node_lock`
decides what to write, `kube` reads and writes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/nodelock/nodelock.go
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

import structlog

from hami_scheduler.bind.node_lock import Lock, LockAction, LockPlan, Owner, lock_text, owner_state, plan_lock, releases
from hami_scheduler.errors import ApiConflictError, ApiRefusedError, ApiUnknownError, BindError
from hamicommon.model import NodeLock
from hamicommon.runtime.api.reflector import Backoff
from hamicommon.wire import keys

T = TypeVar("T")
_Pod = tuple[str, str]
"""Namespace and name."""

_READ_AGAIN_SECONDS = 1.0
"""Longest wait between two reads of a held lock. A change seen by the watch ends the wait."""
_CONFLICTS = 8
"""Conflicts in a row before a write is given up: the Node is changing all the time."""
_CONFLICT_SECONDS = (0.01, 1.0)
"""Wait after the first conflict, and longest wait."""
_TIDY_SECONDS = 2.0
"""How long a lock is left alone. A device plugin usually releases it within a second."""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LockReading:
    """A Node's lock annotation, None without one, and the version of the Node."""

    value: str | None
    resource_version: str


class LockStore(Protocol):
    """What locking needs of the API server."""

    async def read_lock(self, node: str, key: str) -> LockReading:
        """Return the lock *key* of *node* as it is now."""

    async def write_lock(self, node: str, key: str, value: str | None, resource_version: str) -> None:
        """Set, or with None remove, the lock *key* of *node* if it is still at *resource_version*."""

    async def read_pod(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the Pod, None if it does not exist."""


@dataclass(eq=False, slots=True)
class _Waiter:
    pod: _Pod
    news: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(slots=True)
class _State:
    """One lock of one Node."""

    busy: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is read and written."""
    waiting: list[_Waiter] = field(default_factory=list)
    """In order of arrival."""
    value: str | None = None
    """The annotation as it was last read or seen."""
    since: datetime | None = None
    """When the value was first seen: the age of a value without a time."""
    tidy_at: float = 0.0
    """When, in steady seconds, the owner is looked at again."""
    written: tuple[_Pod, str] | None = None
    """The Pod that this object last took the lock for, or tried to, and the value written."""
    unsure: _Pod | None = None
    """The Pod for which a write that takes the lock has no answer yet."""
    in_vain: str | None = None
    """The value that a Pod has last waited for until its patience ended."""

    def names(self, pod: _Pod) -> bool:
        return releases(self.value, *pod) and "," in (self.value or "")

    def wake(self) -> None:
        for waiter in self.waiting:
            waiter.news.set()


async def need_not_lead() -> str | None:
    """Return no reason against a write: every replica may."""
    return None


class NodeLocks:
    """The locks of every Node."""

    def __init__(
        self,
        store: LockStore,
        now: Callable[[], datetime],
        timeout: timedelta,
        scheduler_name: str = "",
        confirm: Callable[[], Awaitable[str | None]] = need_not_lead,
    ) -> None:
        """
        Lock through *store*; a lock that names its owner expires after *timeout*.

        *scheduler_name* is that of the Pods we bind. *confirm* says why we may not write, by a read that begins after
        its call; None if we may.
        """
        self._store = store
        self._now = now
        self._timeout = timeout
        self._scheduler_name = scheduler_name
        self._confirm = confirm
        self._nodes: dict[str, dict[str, _State]] = {}
        self._in_vain: list[tuple[str, _State]] = []
        """The locks that were waited for in vain; those that have changed since are dropped at the next look."""
        self._binding: Counter[tuple[str, _Pod]] = Counter()
        """By Node and Pod: binds in progress."""

    def observe(self, node: str, annotations: Mapping[str, str]) -> None:
        """Note that the watch saw *node* with these *annotations*."""
        if keys.NODE_LOCK in annotations:
            self._state(node, keys.NODE_LOCK)
        for key, state in self._nodes.get(node, {}).items():
            self._saw(state, annotations.get(key))

    def contended(self) -> set[str]:
        """Return the Nodes of which a Pod has waited in vain for a lock that has not changed since."""
        found = {node for node, state in self._in_vain if state.in_vain == state.value}
        self._in_vain = [each for each in self._in_vain if each[0] in found]
        return found

    @contextmanager
    def binding(self, node: str, namespace: str, pod: str) -> Iterator[None]:
        """Mark the block as a bind of a Pod to *node*, which needs the locks that name the Pod."""
        key = (node, (namespace, pod))
        self._binding[key] += 1
        try:
            yield
        finally:
            self._binding[key] -= 1
            if not self._binding[key]:
                del self._binding[key]

    async def acquire(self, node: str, lock: Lock, namespace: str, pod: str, wait_seconds: float) -> None:
        """
        Take *lock* of *node* for a Pod; wait at most *wait_seconds* for its holder.

        Raises:
            BindError: the lock was held all the time.
            ApiRefusedError, ApiUnknownError: the API server did not do as asked; the lock may be taken.
        """
        state, me = self._state(node, lock.key), _Waiter((namespace, pod))
        held = f"node {node} is locked"
        state.waiting.append(me)
        try:
            async with asyncio.timeout(wait_seconds if wait_seconds > 0 else None):
                while True:
                    if wait_seconds > 0:
                        await _turn(state, me)
                    me.news.clear()
                    async with state.busy:
                        plan = await _retry_conflicts(lambda: self._try(node, lock, me.pod, state))
                    if plan.action in {LockAction.TAKE, LockAction.HELD}:
                        return
                    held = f"node {node}: {plan.reason}: node lock contention"
                    if wait_seconds <= 0:
                        raise BindError(held)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_READ_AGAIN_SECONDS):
                            await me.news.wait()
        except TimeoutError as error:
            if state.value is not None:
                state.in_vain = state.value
                self._in_vain.append((node, state))
            raise BindError(f"{held}, waited {wait_seconds:.0f} s") from error
        finally:
            state.waiting.remove(me)
            state.wake()
            if state.unsure == me.pod:
                await self._undo(node, lock, me.pod, state)

    async def _undo(self, node: str, lock: Lock, pod: _Pod, state: _State) -> None:
        """Release the lock whose taking was not answered. If it is carried out even later, `tidy` finds it."""
        state.unsure = None
        try:
            await self.release(node, lock, *pod)
        except (ApiRefusedError, ApiUnknownError) as error:
            logger.warning("A node lock may stay for some seconds", node=node, lock=lock.key, error=str(error))

    async def release(self, node: str, lock: Lock, namespace: str, pod: str) -> None:
        """
        Remove *lock* of *node* if this Pod holds it. A lock without an owner is removed only if this object took it.

        A replica that does not lead any more removes nothing: the next leader may need the lock.

        Raises:
            ApiRefusedError, ApiUnknownError: the API server did not do as asked.
        """
        state, owner = self._state(node, lock.key), (namespace, pod)

        async def read_and_write() -> None:
            """Remove the lock as it is now."""
            reading = await self._store.read_lock(node, lock.key)
            self._saw(state, reading.value)
            if lock.seconds:
                is_ours = state.written == (owner, reading.value)
            else:
                is_ours = releases(reading.value, namespace, pod)
            if is_ours and await self._confirm() is None:
                await self._remove(node, lock.key, reading, state)

        async with state.busy:
            await _retry_conflicts(read_and_write)

    async def tidy(self) -> None:
        """
        Remove the locks whose Pods need them no more: gone, started, or unbound and not being bound by us.

        Such a lock is left by a holder that died, or by a write that was carried out after we gave up. A failure is
        logged, and the next call tries again.
        """
        now = time.monotonic()
        for node, states in [*self._nodes.items()]:
            state = states.get(keys.NODE_LOCK)
            if state is None or state.value is None or now < state.tidy_at:
                continue
            state.tidy_at = now + _TIDY_SECONDS
            try:
                async with state.busy:
                    await self._tidy_one(node, state)
            except ApiConflictError:
                continue
            except (ApiRefusedError, ApiUnknownError) as error:
                logger.info("A node lock cannot be looked at", node=node, error=str(error))

    async def _tidy_one(self, node: str, state: _State) -> None:
        reading = await self._store.read_lock(node, keys.NODE_LOCK)
        self._saw(state, reading.value)
        plan = self._plan(reading, Lock(keys.NODE_LOCK), ("", ""), state, None)
        if plan.owner is None or not plan.owner.pod:
            return
        found = await self._owner_state(node, plan.owner)
        if found is Owner.BUSY or await self._confirm() is not None or self._is_binding(node, plan.owner):
            return
        await self._remove(node, keys.NODE_LOCK, reading, state)
        logger.info("Removed a node lock that its Pod does not need", node=node, lock=reading.value, pod=found.value)

    async def _remove(self, node: str, key: str, reading: LockReading, state: _State) -> None:
        await self._store.write_lock(node, key, None, reading.resource_version)
        self._saw(state, None)

    async def _try(self, node: str, lock: Lock, pod: _Pod, state: _State) -> LockPlan:
        """Read the lock once, and take it if possible."""
        reading = await self._store.read_lock(node, lock.key)
        self._saw(state, reading.value)
        plan = self._plan(reading, lock, pod, state, None)
        if plan.action is LockAction.ASK_OWNER and plan.owner is not None:
            found = await self._owner_state(node, plan.owner)
            if found is Owner.UNBOUND and (await self._confirm() is not None or self._is_binding(node, plan.owner)):
                found = Owner.BUSY
            plan = self._plan(reading, lock, pod, state, found)
        if plan.action is LockAction.TAKE and plan.value is not None:
            await self._take(node, lock, pod, state, reading, plan.value)
        elif plan.action is LockAction.HELD and state.written != (pod, reading.value):
            # An earlier leader took it for this Pod. Its late writes conflict once the Node has changed.
            value = lock_text(self._now(), *pod, unlike=reading.value)
            await self._take(node, lock, pod, state, reading, value)
        return plan

    async def _take(self, node: str, lock: Lock, pod: _Pod, state: _State, reading: LockReading, value: str) -> None:
        state.written, state.unsure = (pod, value), pod
        try:
            await self._store.write_lock(node, lock.key, value, reading.resource_version)
        except ApiRefusedError:
            state.unsure = None
            raise
        state.unsure = None
        self._saw(state, value)

    async def _owner_state(self, node: str, owner: NodeLock) -> Owner:
        if self._is_binding(node, owner):
            return Owner.BUSY
        pod = await self._store.read_pod(owner.namespace or "", owner.pod or "")
        return owner_state(pod, node, self._scheduler_name)

    def _is_binding(self, node: str, owner: NodeLock) -> bool:
        """Return whether we are binding the owner of a lock to *node*."""
        return (node, (owner.namespace or "", owner.pod or "")) in self._binding

    def _state(self, node: str, key: str) -> _State:
        return self._nodes.setdefault(node, {}).setdefault(key, _State())

    def _saw(self, state: _State, value: str | None) -> None:
        if value != state.value:
            state.value, state.since = value, self._now()
            state.tidy_at = time.monotonic() + _TIDY_SECONDS
            state.wake()

    def _plan(self, reading: LockReading, lock: Lock, pod: _Pod, state: _State, found: Owner | None) -> LockPlan:
        return plan_lock(
            reading.value,
            *pod,
            now=self._now(),
            timeout=timedelta(seconds=lock.seconds) if lock.seconds else self._timeout,
            owner_state=found,
            first_seen=state.since,
            names_owner=not lock.seconds,
        )


async def _turn(state: _State, me: _Waiter) -> None:
    """Wait until *me* is the first that waits, or the lock names its Pod."""
    while state.waiting[0] is not me and not state.names(me.pod):
        me.news.clear()
        await me.news.wait()


async def _retry_conflicts(act: Callable[[], Awaitable[T]]) -> T:
    """
    Return the result of *act*, which reads and then writes; repeat it if the Node changed in between.

    Raises:
        ApiConflictError: the Node changed every time.
    """
    backoff = Backoff(*_CONFLICT_SECONDS)
    for _ in range(_CONFLICTS - 1):
        try:
            return await act()
        except ApiConflictError:
            await asyncio.sleep(backoff.next_seconds())
    return await act()
