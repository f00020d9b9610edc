"""
The limiter's promises in virtual time, each in some cells of the acceptance matrix (`matrix` has all).
"""

from pathlib import Path

import pytest
from limiter.cells import SETTLING_SECONDS, UNLIMITED, Cell, Share, Tenant, run
from limiter.matrix import FULL, SWITCHED, TOLERANCE
from virtual import not_under_tsan

pytestmark = not_under_tsan

SECONDS = 20
EVEN_SECONDS = 60
LEAD_MS, NAP_MS = 10, 50
"""How far a process may get ahead of another one of its container, and how long a launch sleeps at most (README.md)."""


def alone(build: Path, tenant: Tenant, window_ms: int | None = 166) -> Share:
    """Return what a container gets that has a device to itself."""
    return run(Cell((tenant,), window_ms), build, SECONDS)[0]


def assert_holds(limit: float, share: Share, begin: int = SETTLING_SECONDS) -> None:
    """Fail unless the mean from a second on is as close to the limit as promised."""
    assert limit - TOLERANCE <= share.mean(begin) <= limit + TOLERANCE


@pytest.mark.parametrize("limit", [5, 30, 90])
@pytest.mark.parametrize(
    "kernel", ["busy_20", "busy_1000", "busy_100000", "lognormal_1000_100", "lognormal_20_100", "lognormal_10000_50"]
)
def test_limit_holds_for_kernels_of_any_length(build: Path, kernel: str, limit: int) -> None:
    """Of 20 µs and of 100 ms, constant and log-normal."""
    assert_holds(limit, alone(build, Tenant(limit, kernel)))


@pytest.mark.parametrize(
    "tenant",
    [
        Tenant(50, "busy_20", processes=4),
        Tenant(50, "busy_1000", streams=8),
        Tenant(50, "busy_20", processes=4, streams=8),
        Tenant(50, "lognormal_1000_100", processes=4, streams=8),
        Tenant(50, "busy_10000@10", streams=8),
    ],
    ids=["processes", "streams", "both", "log-normal", "side-by-side"],
)
@pytest.mark.parametrize("window_ms", [166, 1000, None])
def test_processes_and_streams_of_a_container_share_its_limit(
    build: Path, tenant: Tenant, window_ms: int | None
) -> None:
    """Overlapping work counts once, with and without NVML."""
    assert_holds(50, alone(build, tenant, window_ms))


@pytest.mark.parametrize("kernel", ["busy_20", "busy_10000", "lognormal_1000_100"])
def test_graphs_are_held_to_the_limit(build: Path, kernel: str) -> None:
    """A graph costs what its kernels cost together."""
    assert_holds(25, alone(build, Tenant(25, kernel, graph=4)))


@pytest.mark.parametrize(
    "kernel", ["phase_1000_3000_10000", "phase_20_100000_200", "phase_10000_200_100000", "phase_10000_200_1000"]
)
def test_kernel_that_changes_its_length_is_caught_at_once(build: Path, kernel: str) -> None:
    """Ten times longer or shorter in the middle of the run: the mean holds, and no second is ten points above the
    limit."""
    share = alone(build, Tenant(30, kernel))

    assert_holds(30, share)
    assert max(share.seconds[2:]) <= 40


@pytest.mark.parametrize("kernel", ["busy_20", "busy_1000", "busy_10000"])
def test_limit_holds_from_the_third_second_on(build: Path, kernel: str) -> None:
    """A kernel of unknown cost is measured before more of it may run."""
    assert all(limit <= 33 for limit in alone(build, Tenant(30, kernel)).seconds[2:])


@pytest.mark.parametrize("window_ms", [166, 500, 1000])
@pytest.mark.parametrize("kernel", ["busy_20", "busy_1000", "busy_10000", "busy_100000"])
def test_limit_holds_beside_a_neighbour_from_the_third_second_on(build: Path, kernel: str, window_ms: int) -> None:
    """NVML's first complete window separates the container's work from others', before its length is known."""
    share, _ = run(Cell((Tenant(30, kernel), Tenant(UNLIMITED, kernel)), window_ms), build, 2)

    assert_holds(30, share, 2)
    assert all(30 - 2 * TOLERANCE <= second <= 40 for second in share.seconds[2:])


@pytest.mark.parametrize("window_ms", [166, 1000])
@pytest.mark.parametrize("kernel", ["busy_20", "busy_1000", "lognormal_1000_100"])
def test_neighbours_get_their_own_shares(build: Path, kernel: str, window_ms: int) -> None:
    """30 beside 70: the smaller share is exact, and the larger one gets what switching leaves of the device."""
    small, large = run(Cell((Tenant(30, kernel), Tenant(70, kernel)), window_ms), build, SECONDS)

    assert_holds(30, small)
    assert large.mean() <= 70 + TOLERANCE
    assert large.mean() >= 70 - TOLERANCE or small.mean() + large.mean() >= FULL


def test_unlimited_neighbour_takes_nothing_from_a_share(build: Path) -> None:
    """A limit below a container's slices is reached beside an unlimited program."""
    limited, unlimited = run(Cell((Tenant(25, "busy_1000"), Tenant(UNLIMITED, "busy_1000"))), build, SECONDS)

    assert_holds(25, limited)
    assert unlimited.mean() >= 100 * SWITCHED - 25 - TOLERANCE


def test_without_nvml_a_neighbour_costs_and_never_gives(build: Path) -> None:
    """Without NVML, time that others take in between counts as the container's own."""
    small, large = run(Cell((Tenant(30, "busy_1000"), Tenant(60, "busy_1000")), None), build, SECONDS)

    assert 10 <= small.mean() <= 30 + TOLERANCE
    assert 30 <= large.mean() <= 60 + TOLERANCE


@pytest.mark.parametrize(("kernel", "pause_us"), [("busy_1000", 2000), ("busy_20", 30), ("busy_10000", 10000)])
def test_program_below_its_share_is_as_fast_as_without_the_library(build: Path, kernel: str, pause_us: int) -> None:
    """The difference is less than a hundredth."""
    tenant = Tenant(75, kernel, pause_us=pause_us)
    bare, limited = (run(Cell((tenant,), has_library=library), build, SECONDS)[0] for library in (False, True))

    assert limited.launches >= bare.launches * 0.99


@pytest.mark.parametrize("limit", [10, 50])
@pytest.mark.parametrize(
    ("kernel", "longest_ms", "streams"),
    [
        ("busy_20", 0.02, 1),
        ("busy_1000", 1, 1),
        ("busy_10000", 10, 1),
        ("busy_100000", 100, 1),
        ("lognormal_20_100", 1, 1),
        ("busy_1000,busy_10000", 10, 1),
        ("busy_20,busy_10000", 10, 8),
    ],
)
def test_processes_of_a_container_come_along_evenly(
    build: Path, kernel: str, longest_ms: float, streams: int, limit: int
) -> None:
    """Each gets an equal part, within a point at half of the device, a lead of 10 ms and a launch on each stream."""
    share = run(Cell((Tenant(limit, kernel, processes=4, streams=streams),)), build, EVEN_SECONDS)[0]
    part, lead = sum(share.processes) / 4, 2 * (LEAD_MS + streams * longest_ms) / 1000 / EVEN_SECONDS * 100

    assert all(abs(one - part) <= lead + limit / 50 for one in share.processes)


@pytest.mark.parametrize(("kernel", "cost_ms"), [("busy_1000", 1), ("busy_10000", 10), ("busy_100000", 100)])
def test_no_process_starves(build: Path, kernel: str, cost_ms: int) -> None:
    """
    Of four processes that want the device each waits for the others' turns and a sleep. The longest wait is at the
    start.

    Then each has launched one kernel of unknown cost, and may be allowed twice the lead to catch up.
    """
    share = alone(build, Tenant(50, kernel, processes=4))

    assert share.longest_ms <= (4 * cost_ms + 3 * (2 * LEAD_MS + cost_ms)) * 100 / 50 + NAP_MS
