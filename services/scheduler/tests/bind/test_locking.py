"""
Node locks: which ones a grant needs, and how each vendor's lock is taken and released.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hami_scheduler.bind import locking
from hami_scheduler.bind.locking import LockReading, NodeLocks
from hami_scheduler.bind.node_lock import Lock
from hami_scheduler.bind.plan import BindPlan, locks_needed
from hami_scheduler.errors import ApiUnknownError, BindError
from hami_scheduler.serve import bind_writer
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.values.grant import Grant
from hamicommon.model import Share
from hamicommon.pod.containers import ContainerKind
from hamicommon.wire import keys

from ..support.builders import NOW, a_cluster, vendors

VENDORS = vendors()
SHARED = Lock(keys.NODE_LOCK)
MLU = Lock("cambricon.com/dsmlu.lock", 120)
LAST = Lock("z.io/lock")


class Store:
    """The annotations of one Node."""

    def __init__(self, **annotations: str) -> None:
        self.annotations: dict[str, str] = annotations
        self.now = NOW

    async def read_lock(self, _node: str, key: str) -> LockReading:
        """Return it."""
        return LockReading(self.annotations.get(key), "1")

    async def write_lock(self, _node: str, key: str, value: str | None, _version: str) -> None:
        """Set it."""
        self.annotations.pop(key, None)
        if value is not None:
            self.annotations[key] = value

    async def read_pod(self, _namespace: str, _name: str) -> Any:
        """Every Pod is bound to the Node and waits for its devices."""
        return {"spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}


def granted(*names: str) -> Grant:
    """Return a grant of one device of each of the vendors *names*."""
    shares = {key: ((Share("d", key, 1, 1),),) for key in names}
    return Grant("u", "default", "p", "n", (ContainerKind.APP,), shares)


@pytest.mark.parametrize(
    ("names", "finds_owners", "locks"),
    [
        (["NVIDIA"], False, [SHARED]),
        (["NVIDIA"], True, []),
        (["NVIDIA", "DCU"], True, [SHARED]),
        (["DCU", "AMD", "Biren", "MLU"], True, [MLU, SHARED]),
        (["Mthreads", "Metax-GPU", "AWSNeuron", "kunlun", "GCU"], False, []),
    ],
)
def test_locks_are_those_of_the_vendors_that_give_something(
    names: list[str], finds_owners: bool, locks: list[Lock]
) -> None:
    """Each once, sorted; an NVIDIA plugin that finds owners itself needs none."""
    assert set(names) <= {rules.key for rules in VENDORS}
    assert tuple(locks) == locks_needed(granted(*names), VENDORS, finds_owners=finds_owners)


def locks_of(store: Store) -> NodeLocks:
    """Return a scheduler's locks."""
    return NodeLocks(store, lambda: store.now, timedelta(minutes=5))


async def test_lock_without_owner_is_a_time_alone_and_anyones_after_its_own_time() -> None:
    """Cambricon's plugin reads nothing else; HAMi gives it two minutes."""
    store = Store()
    await locks_of(store).acquire("n", MLU, "default", "a", 0)
    assert {MLU.key: "2026-01-01T00:00:00Z"} == store.annotations

    store.now += timedelta(seconds=120)
    with pytest.raises(BindError, match="node lock contention"):
        await locks_of(store).acquire("n", MLU, "default", "b", 0)
    store.now += timedelta(seconds=1)
    await locks_of(store).acquire("n", MLU, "default", "b", 0)
    assert {MLU.key: "2026-01-01T00:02:01Z"} == store.annotations


async def test_lock_without_owner_is_given_back_only_by_who_took_it() -> None:
    """HAMi removes it after any failed bind on the Node, even if another Pod holds it."""
    store = Store()
    ours, other = locks_of(store), locks_of(store)
    await ours.acquire("n", MLU, "default", "a", 0)

    await other.release("n", MLU, "default", "a")
    await ours.release("n", MLU, "default", "b")
    assert [MLU.key] == list(store.annotations)
    await ours.release("n", MLU, "default", "a")
    assert {} == store.annotations

    store.annotations[MLU.key] = "2026-01-01T00:00:01Z"
    await ours.release("n", MLU, "default", "a")
    assert [MLU.key] == list(store.annotations)


async def test_locks_of_a_node_do_not_wait_for_each_other() -> None:
    """MLU's and the shared one are two; who waits for one wakes when that one changes."""
    store = Store(**{keys.NODE_LOCK: "2026-01-01T00:00:00Z,default,other"})
    locks = locks_of(store)
    waiting = asyncio.create_task(locks.acquire("n", SHARED, "default", "a", 30))
    await asyncio.sleep(0)
    await locks.acquire("n", MLU, "default", "a", 0)
    assert not waiting.done()

    del store.annotations[keys.NODE_LOCK]
    locks.observe("n", store.annotations)
    await asyncio.wait_for(waiting, 0.5)
    assert "2026-01-01T00:00:00Z,default,a" == store.annotations[keys.NODE_LOCK]


async def test_locks_of_a_bind_are_all_taken_or_none() -> None:
    """They are taken in order and released in reverse."""
    done = []

    class Locks:
        async def acquire(self, _node: str, lock: Lock, *_pod: object) -> None:
            """Take it, unless it is the last."""
            if lock == LAST:
                raise BindError("held")
            done.append(("take", lock))

        async def release(self, _node: str, lock: Lock, *_pod: object) -> None:
            """Give it back."""
            done.append(("give back", lock))

    locks: Any = Locks()
    api: Any = None
    context = Context(a_cluster(), api, locks, Clock(lambda: NOW, lambda: 0.0), Settings(), lambda: None)
    with pytest.raises(BindError, match="held"):
        await bind_writer._lock(context, BindPlan("u", "default", "p", "n", {}), (MLU, SHARED, LAST))

    assert [("take", MLU), ("take", SHARED), ("give back", SHARED), ("give back", MLU)] == done


async def test_owner_of_a_lock_does_not_wait_behind_others() -> None:
    """Another Pod came first and waits; the lock is free for it as soon as its owner is done."""
    store = Store(**{keys.NODE_LOCK: "2026-01-01T00:00:00Z,default,b"})
    locks = locks_of(store)
    first = asyncio.create_task(locks.acquire("n", SHARED, "default", "a", 28))
    await asyncio.sleep(0.05)

    await asyncio.wait_for(locks.acquire("n", SHARED, "default", "b", 28), 0.5)
    assert not first.done()
    await locks.release("n", SHARED, "default", "b")
    await asyncio.wait_for(first, 0.5)
    assert store.annotations[keys.NODE_LOCK].endswith(",default,a")


async def test_lock_that_another_leader_took_for_the_pod_is_written_again() -> None:
    """Its late release is conditional on the Node as it was, even within the same second."""
    store = Store(**{keys.NODE_LOCK: "2026-01-01T00:00:00Z,default,a"})
    locks = locks_of(store)

    await locks.acquire("n", SHARED, "default", "a", 0)
    assert {keys.NODE_LOCK: "2026-01-01T00:00:01Z,default,a"} == store.annotations
    await locks.acquire("n", SHARED, "default", "a", 0)
    assert {keys.NODE_LOCK: "2026-01-01T00:00:01Z,default,a"} == store.annotations


async def test_lock_whose_taking_had_no_answer_is_given_back() -> None:
    """The write was carried out; the bind has failed."""

    class Lossy(Store):
        async def write_lock(self, node: str, key: str, value: str | None, version: str) -> None:
            """Write, and lose the answer of a lock that is taken."""
            await super().write_lock(node, key, value, version)
            if value is not None:
                raise ApiUnknownError("no answer")

    for lock in (SHARED, MLU):
        store = Lossy()
        with pytest.raises(ApiUnknownError):
            await locks_of(store).acquire("n", lock, "default", "a", 28)
        assert {} == store.annotations


GONE: Any = None
BOUND: Any = {"spec": {"nodeName": "n"}, "status": {"phase": "Pending"}}
STARTED: Any = {"spec": {"nodeName": "n"}, "status": {"phase": "Running"}}
ELSEWHERE: Any = {"spec": {"nodeName": "m"}, "status": {"phase": "Pending"}}
ALLOCATED: Any = {**BOUND, "metadata": {"annotations": {keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS}}}
UNBOUND: Any = {"spec": {"schedulerName": "ours"}, "status": {"phase": "Pending"}}
OF_HAMI: Any = {**UNBOUND, "metadata": {"annotations": {keys.POD_NODE: "n"}}}
OF_OTHERS: Any = {"spec": {"schedulerName": "theirs"}, "status": {"phase": "Pending"}}


@pytest.mark.parametrize(
    ("owner", "is_needed"),
    [
        (GONE, False),
        (BOUND, True),
        (STARTED, False),
        (ELSEWHERE, False),
        (ALLOCATED, False),
        (UNBOUND, False),
        (OF_HAMI, True),
        (OF_OTHERS, True),
    ],
    ids=["gone", "bound", "started", "elsewhere", "allocated", "unbound", "of HAMi", "of others"],
)
async def test_lock_lives_no_longer_than_its_pod_needs_it(
    owner: Any, is_needed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader removes it, or who waits takes it: not while its Pod is being bound, and only while it leads."""
    monkeypatch.setattr(locking, "_TIDY_SECONDS", 0.0)

    class Owned(Store):
        async def read_pod(self, _namespace: str, _name: str) -> Any:
            """Return the owner."""
            return owner

    async def deposed() -> str:
        return "the Lease is another's"

    value = "2026-01-01T00:00:00Z,default,owner"
    store = Owned(**{keys.NODE_LOCK: value})
    old = NodeLocks(store, lambda: store.now, timedelta(minutes=5), "ours", deposed)
    old.observe("n", store.annotations)
    await old.tidy()
    locks = NodeLocks(store, lambda: store.now, timedelta(minutes=5), "ours")
    locks.observe("n", store.annotations)
    with locks.binding("n", "default", "owner"):
        await locks.tidy()
    assert {keys.NODE_LOCK: value} == store.annotations

    await locks.tidy()
    assert is_needed is (keys.NODE_LOCK in store.annotations)

    store.annotations[keys.NODE_LOCK] = value
    if is_needed:
        with pytest.raises(BindError, match="node lock contention"):
            await locks.acquire("n", SHARED, "default", "a", 0)
    else:
        await locks.acquire("n", SHARED, "default", "a", 0)
        assert store.annotations[keys.NODE_LOCK].endswith(",default,a")


async def test_node_is_contended_until_its_lock_changes() -> None:
    """A Pod that has waited in vain is better placed elsewhere."""
    store = Store(**{keys.NODE_LOCK: "2026-01-01T00:00:00Z,default,other"})
    locks = locks_of(store)
    assert set() == locks.contended()
    with pytest.raises(BindError, match="waited"):
        await locks.acquire("n", SHARED, "default", "a", 0.05)

    assert {"n"} == locks.contended()
    locks.observe("n", {})
    assert set() == locks.contended()
