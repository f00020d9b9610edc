"""
Who gets the lock of a Node: HAMi's answers in `vectors/nodes/lock.json`, and what holds for every value.
"""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_scheduler.bind.node_lock import LockAction, LockPlan, Owner, plan_lock, releases

from ..support.hami_vectors import Case, by_name, cases
from ..support.vector_times import NOW, unmasked

ZONES = st.integers(-23 * 60, 23 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
TIMES = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES | st.just(UTC))


def planned(case: Case, value: str | None) -> LockPlan:
    """Return the plan for the case's Pod, and plan again with the answer if the owner must be checked."""
    plan = plan_lock(value, case["ns"], case["name"], now=NOW)
    if plan.action is LockAction.ASK_OWNER:
        assert plan.owner is not None
        exists = f"{plan.owner.namespace}/{plan.owner.pod}" in case["pods"]
        state = Owner.BUSY if exists else Owner.GONE
        plan = plan_lock(value, case["ns"], case["name"], now=NOW, owner_state=state)
    return plan


@pytest.mark.parametrize("case", by_name(cases("nodes/lock")))
def test_lock_is_taken_waited_for_and_released_as_hami_does(case: Case) -> None:
    """The annotation is the same afterwards. A malformed lock is waited for, until it is old (next test)."""
    value = None if case["lock"] is None else unmasked(case["lock"])
    if case["do"] == "lock":
        plan = planned(case, value)
        after = plan.value.replace("2026-08-21T12:00:00Z", "<now>") if plan.value else "unchanged"
        succeeds = plan.action in (LockAction.TAKE, LockAction.HELD)
    else:
        is_removed = releases(value, case["ns"], case["name"], force=case["do"] == "force-release")
        after = "absent" if is_removed or value is None else "unchanged"
        succeeds = True
    assert (case["out"]["after"], "error" not in case["out"]) == (after, succeeds)


def test_malformed_lock_is_taken_once_it_has_been_seen_for_the_timeout() -> None:
    """In HAMi it never expires, so the Node is blocked for ever. Here it expires as any other."""
    seen = NOW - timedelta(minutes=5)
    assert LockAction.WAIT is plan_lock("lock", "default", "a", now=NOW, first_seen=seen).action
    plan = plan_lock("lock", "default", "a", now=NOW + timedelta(seconds=1), first_seen=seen)
    assert (LockAction.TAKE, "2026-08-21T12:00:01Z,default,a") == (plan.action, plan.value)


@pytest.mark.parametrize(
    ("value", "is_released"),
    [
        (None, False),
        ("2026-08-21T12:00:00Z,default,a", True),
        ("2026-08-21T12:00:00Z,default,b", False),
        ("2026-08-21T12:00:00Z,xdefault,a", False),
        ("2026-08-21T12:00:00Z", True),
        ("malformed", True),
        ("malformed,default,a", True),
    ],
)
def test_only_the_owner_releases_a_lock_that_names_one(value: str | None, is_released: bool) -> None:
    """Any Pod may remove a value without owner."""
    assert is_released is releases(value, "default", "a")


@given(st.text(max_size=60), TIMES)
def test_any_lock_has_a_plan(value: str, now: datetime) -> None:
    """No exception escapes, and a Pod that may not have the lock never writes."""
    plan = plan_lock(value, "default", "a", now=now)
    assert (plan.value is not None) == (plan.action is LockAction.TAKE)
    assert releases(value, "default", "a", force=True)
