"""
Take and release node locks, in HAMi's protocol, for Nodes whose device plugin needs them.

Pods that wait for one lock queue up, and only the first reads the Node. Every write is conditional on the
resourceVersion that was read. Neighbours: `bind_plan` says which locks are needed, `node_lock` decides what to write,
`kube` reads and writes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/nodelock/nodelock.go
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from hami_scheduler.decide.node_lock import Lock, LockAction, LockPlan, plan_lock, releases
from hami_scheduler.serve.errors import ApiConflictError, BindError
from hamicommon.runtime.api.reflector import Backoff

T = TypeVar("T")

_READ_AGAIN_SECONDS = 1.0
"""Longest wait between two reads of a held lock. A change seen by the watch ends the wait."""
_CONFLICTS = 8
"""Conflicts in a row before a write is given up: the Node is changing all the time."""
_CONFLICT_SECONDS = (0.01, 1.0)
"""Wait after the first conflict, and longest wait."""


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

    async def pod_exists(self, namespace: str, name: str) -> bool:
        """Return whether the Pod exists."""


@dataclass(slots=True)
class _State:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    odd_value: str | None = None
    odd_since: datetime | None = None
    """When the current lock value was first seen: the age of a value without a time."""
    written: tuple[str, str, str] | None = None
    """Namespace and name of the Pod that the lock was last taken for, and the value written."""


class NodeLocks:
    """The locks of every Node."""

    def __init__(self, store: LockStore, now: Callable[[], datetime], timeout: timedelta) -> None:
        """Lock through *store*; a lock that names its owner expires after *timeout*."""
        self._store = store
        self._now = now
        self._timeout = timeout
        self._nodes: dict[str, dict[str, _State]] = {}

    def observe(self, node: str, annotations: Mapping[str, str]) -> None:
        """Note that the watch saw *node* with these *annotations*."""
        for key, state in self._nodes.get(node, {}).items():
            if annotations.get(key) != state.odd_value:
                state.changed.set()

    async def acquire(self, node: str, lock: Lock, namespace: str, pod: str, wait_seconds: float) -> None:
        """
        Take *lock* of *node* for a Pod; wait at most *wait_seconds* for its holder.

        Raises:
            BindError: the lock was held all the time.
            ApiRefusedError, ApiUnknownError: the API server did not do as asked.
        """
        state = self._nodes.setdefault(node, {}).setdefault(lock.key, _State())
        held = f"node {node} is locked"
        try:
            async with asyncio.timeout(wait_seconds if wait_seconds > 0 else None), state.turn:
                while True:
                    plan = await _retry_conflicts(lambda: self._try(node, lock, namespace, pod, state))
                    if plan.action in {LockAction.TAKE, LockAction.HELD}:
                        return
                    held = f"node {node}: {plan.reason}: node lock contention"
                    if wait_seconds <= 0:
                        raise BindError(held)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_READ_AGAIN_SECONDS):
                            await state.changed.wait()
        except TimeoutError as error:
            raise BindError(f"{held}, waited {wait_seconds:.0f} s") from error

    async def release(self, node: str, lock: Lock, namespace: str, pod: str) -> None:
        """
        Remove *lock* of *node* if this Pod holds it. A lock without an owner is removed only if this object took it.

        Raises:
            ApiRefusedError, ApiUnknownError: the API server did not do as asked.
        """

        state = self._nodes.get(node, {}).get(lock.key, _State())

        async def read_and_write() -> None:
            reading = await self._store.read_lock(node, lock.key)
            if lock.seconds:
                is_ours = state.written == (namespace, pod, reading.value)
            else:
                is_ours = releases(reading.value, namespace, pod)
            if is_ours:
                await self._store.write_lock(node, lock.key, None, reading.resource_version)

        await _retry_conflicts(read_and_write)

    async def _try(self, node: str, lock: Lock, namespace: str, pod: str, state: _State) -> LockPlan:
        """Read the lock once, and take it if possible."""
        state.changed.clear()
        reading = await self._store.read_lock(node, lock.key)
        if reading.value != state.odd_value:
            state.odd_value, state.odd_since = reading.value, self._now()
        plan = self._plan(reading, lock, namespace, pod, state, owner_exists=None)
        if plan.action is LockAction.ASK_OWNER and plan.owner is not None:
            exists = await self._store.pod_exists(plan.owner.namespace or "", plan.owner.pod or "")
            plan = self._plan(reading, lock, namespace, pod, state, owner_exists=exists)
        if plan.action is LockAction.TAKE and plan.value is not None:
            await self._store.write_lock(node, lock.key, plan.value, reading.resource_version)
            state.written = (namespace, pod, plan.value)
        return plan

    def _plan(
        self, reading: LockReading, lock: Lock, namespace: str, pod: str, state: _State, *, owner_exists: bool | None
    ) -> LockPlan:
        return plan_lock(
            reading.value,
            namespace,
            pod,
            now=self._now(),
            timeout=timedelta(seconds=lock.seconds) if lock.seconds else self._timeout,
            owner_exists=owner_exists,
            first_seen=state.odd_since,
            names_owner=not lock.seconds,
        )


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
