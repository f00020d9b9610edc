"""Which devices are taken when more are acceptable than asked."""

from hami_scheduler.values.topology import choose_by_topology

from .builders import a_share

SHARES = [a_share(uuid) for uuid in ("GPU-a", "GPU-b", "GPU-c")]
LINKS = {"GPU-a": {"GPU-b": 10, "GPU-c": 50}, "GPU-b": {"GPU-a": 10, "GPU-c": 20}, "GPU-c": {"GPU-a": 50, "GPU-b": 20}}


def test_best_connected_group_is_taken() -> None:
    """Several devices are those with the highest sum of ratings."""
    assert ["GPU-a", "GPU-c"] == [share.uuid for share in choose_by_topology(SHARES, 2, LINKS)]


def test_single_device_is_the_worst_connected() -> None:
    """Taking the loner leaves the good group to those who need one."""
    assert ["GPU-b"] == [share.uuid for share in choose_by_topology(SHARES, 1, LINKS)]


def test_first_group_wins_without_ratings() -> None:
    """A missing rating counts nothing, so every group ties."""
    assert ["GPU-a", "GPU-b"] == [share.uuid for share in choose_by_topology(SHARES, 2, {})]


def test_exactly_enough_devices_are_all_taken() -> None:
    """There is nothing to choose."""
    assert SHARES == choose_by_topology(SHARES, 3, LINKS)
