"""
Node locks: which ones a grant needs, and how each vendor's lock is taken and released.
"""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from hami_scheduler.decide.bind_plan import locks_needed, plain_bind
from hami_scheduler.decide.node_lock import Lock
from hami_scheduler.serve import bind_writer
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.errors import BindError
from hami_scheduler.serve.locking import LockReading, NodeLocks
from hami_scheduler.values.grant import Grant, make_grant
from hamicommon.held import ContainerKind
from hamicommon.model import Share
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

    async def pod_exists(self, _namespace: str, _name: str) -> bool:
        """Every Pod is there."""
        return True


def granted(*names: str) -> Grant:
    """Return a grant of one device of each of the vendors *names*."""
    shares = {key: ((Share("d", key, 1, 1),),) for key in names}
    return make_grant(("u", "default", "p"), "n", (ContainerKind.APP,), shares)


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
    assert set(names) <= {frame.key for frame in VENDORS}
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
        await bind_writer._lock(context, plain_bind("u", "default", "p", "n"), (MLU, SHARED, LAST))

    assert [("take", MLU), ("take", SHARED), ("give back", SHARED), ("give back", MLU)] == done
