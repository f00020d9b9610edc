"""Since when Pods wait."""

from datetime import UTC, datetime, timedelta

from hami_scheduler.serve.waits import ASKED_WITHIN_SECONDS, Waits

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def never(_uid: str) -> bool:
    """Return that no Pod is known to be deleted."""
    return False


def at(seconds: float) -> datetime:
    """Return the time *seconds* after NOW."""
    return NOW + timedelta(seconds=seconds)


def test_oldest_pod_says_how_long() -> None:
    """A wait begins when the Pod is created, so neither a refusal nor a restart of the scheduler shortens it."""
    waits = Waits()
    waits.refused("old", "2026-03-01T11:00:00Z", NOW)
    waits.refused("new", "2026-03-01T11:59:00Z", at(1))
    waits.refused("old", "2026-03-01T11:00:00Z", at(2))

    assert (2, 3610.0) == waits.now(at(10), never)


def test_pod_with_a_node_waits_no_longer() -> None:
    """Then nothing waits."""
    waits = Waits()
    waits.refused("a", "2026-03-01T11:00:00Z", NOW)
    waits.ended("a")
    waits.ended("never refused")

    assert (0, 0.0) == waits.now(NOW, never)


def test_deleted_pod_waits_no_longer() -> None:
    """It is forgotten for good, because deletions are remembered for a while only."""
    waits = Waits()
    for uid in ("deleted", "waits"):
        waits.refused(uid, "2026-03-01T11:00:00Z", NOW)

    assert 1 == waits.now(NOW, lambda uid: uid == "deleted")[0]
    assert 1 == waits.now(NOW, never)[0]


def test_pod_whose_end_was_missed_is_forgotten_when_nobody_asks_about_it() -> None:
    """kube-scheduler would ask again within five minutes."""
    waits = Waits()
    waits.refused("deleted", "2026-03-01T11:00:00Z", NOW)
    waits.refused("waits", "2026-03-01T11:59:00Z", at(300))

    assert 2 == waits.now(at(ASKED_WITHIN_SECONDS - 1), never)[0]
    assert (1, 60 + ASKED_WITHIN_SECONDS) == waits.now(at(ASKED_WITHIN_SECONDS), never)


def test_time_that_cannot_be_read_counts_from_the_first_refusal() -> None:
    """A body may hold anything, and a clock may be behind the API server's."""
    for created in ("", "yesterday", "2026-03-01T11:00:00"):
        waits = Waits()
        waits.refused("a", created, NOW)
        waits.refused("a", created, at(60))
        assert (1, 61.0) == waits.now(at(61), never)
    ahead = Waits()
    ahead.refused("a", "2026-03-01T12:00:30Z", NOW)
    assert (1, 0.0) == ahead.now(NOW, never)


def test_many_pods_cost_bounded_memory() -> None:
    """The last refused are kept."""
    waits = Waits()
    for number in range(20_100):
        waits.refused(str(number), "", NOW)

    assert 20_000 == waits.now(NOW, never)[0]
