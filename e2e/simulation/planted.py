"""
Defects that the simulation must find: each takes one promise away from the scheduler, as a careless change would.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from hami_scheduler.bind import fences, plan
from hami_scheduler.bind.locking import NodeLocks
from hami_scheduler.bind.node_lock import Owner
from hami_scheduler.serve import bind, bind_writer
from hami_scheduler.serve.background import periodic, takeover
from hami_scheduler.serve.background.readiness import Readiness
from hami_scheduler.state.cluster import Cluster
from harness.history.findings import Rule

TOO_MUCH = frozenset({Rule.MEMORY, Rule.CORES, Rule.COUNT, Rule.EXCLUSIVE})
"""A device is granted twice."""


async def _read_only(api: Any, pod: Any, _mark: str) -> Any:
    return await fences._read(api, pod)


async def _read(api: Any, pod: Any, _marks: Any) -> Any:
    return await fences._read(api, pod)


async def _nothing(*_: Any) -> None:
    """Say that all is well, without looking."""


async def _busy(*_: Any) -> Owner:
    return Owner.BUSY


def _less_memory(*arguments: Any) -> plan.BindPlan:
    made = plan.plan_bind(*arguments)
    key = made.granted_keys[0]
    made.annotations[key] = made.annotations[key].replace(",8000,", ",7999,")
    return made


def _nowhere(_: Cluster, __: Any) -> None:
    """Count nothing of what was read."""


DEFECTS: dict[str, tuple[frozenset[Rule], Callable[[], AbstractContextManager[Any]]]] = {
    "a new leader fences no Pod": (TOO_MUCH, lambda: patch.object(takeover, "fence", _read_only)),
    "the Lease is not read before a write": (TOO_MUCH, lambda: patch.object(Readiness, "confirm", _nothing)),
    "a Binding without an answer is taken for failed": (
        TOO_MUCH,
        lambda: patch.object(bind_writer, "find_out", _read),
    ),
    "a Pod that was read is not counted": (TOO_MUCH, lambda: patch.object(Cluster, "put_read", _nowhere)),
    "a lock that nobody needs stays": (
        frozenset({Rule.LOCK}),
        lambda: patch.multiple(NodeLocks, release=_nothing, tidy=_nothing, _owner_state=_busy),
    ),
    "a bind in doubt stays so": (frozenset({Rule.LOST}), lambda: patch.object(periodic, "find_outcomes", _nothing)),
    "a grant is a MiB short": (frozenset({Rule.REQUEST}), lambda: patch.object(bind, "plan_bind", _less_memory)),
}
"""Each with the rules of which it breaks one, and how to plant it while a block runs."""
