"""
Kernels that the library does not know: their first use costs no more than the next, and a program gains nothing by
using only new ones.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from limiter.cells import SETTLING_SECONDS, Cell, Tenant, run
from limiter.matrix import NEW_KINDS, TOLERANCE
from limiter.programs import FIRST_USES, LONGER, measure_first_use
from virtual import not_under_tsan

pytestmark = not_under_tsan

SECONDS = 20


@pytest.mark.parametrize("limit", [5, 10, 15, 20, 30, 50, 75, 90])
@pytest.mark.parametrize("title", FIRST_USES)
def test_first_use_of_kernels_takes_about_as_long_as_the_next(build: Path, title: str, limit: int) -> None:
    """The first pass over 400 kernels takes at most half as long again as the slower of the next two."""
    used = measure_first_use(title, limit, build)

    assert used.first_ms <= LONGER * used.next_ms


def test_first_use_beside_a_neighbour_takes_about_as_long_as_at_the_limit(build: Path) -> None:
    """Each kernel waits for its time slice, but not each for the one before."""
    mine = Tenant(30, "busy_30", kinds=400, spread=41, known=2, passes=1)
    share, _ = run(Cell((mine, Tenant(100, "busy_1000"))), build, 5)

    assert share.passes_ms[0][0] <= 300


ALWAYS_NEW = {
    "kinds": Tenant(0, "busy_20", kinds=NEW_KINDS, reload=1),
    "short": Tenant(0, "busy_20", kinds=NEW_KINDS, spread=20, reload=1),
    "long": Tenant(0, "busy_100000", kinds=NEW_KINDS, spread=1, reload=1),
    "unloaded": Tenant(0, "busy_20", kinds=NEW_KINDS, reload=2),
    "grids": Tenant(0, "busy_20", kinds=NEW_KINDS, sms=188, reload=1),
    "graphs": Tenant(0, "busy_20", kinds=NEW_KINDS, graph=4, reload=1),
    "streams": Tenant(0, "busy_20", kinds=NEW_KINDS, streams=8, reload=1),
    "processes": Tenant(0, "busy_20", kinds=NEW_KINDS, processes=2, reload=1),
    "many": Tenant(0, "busy_20", kinds=NEW_KINDS, spread=20, processes=4, streams=8, reload=1),
    "short and long": Tenant(0, "busy_20,busy_20000", kinds=NEW_KINDS, spread=20, processes=2, streams=2, reload=1),
}
"""Programs of which every launch is of a kernel that was never launched before, or of one at the place of another."""


@pytest.mark.parametrize("limit", [5, 50, 90])
@pytest.mark.parametrize("name", ALWAYS_NEW)
@pytest.mark.parametrize("is_concurrent", [False, True], ids=["slices", "mps"])
def test_program_that_launches_only_new_kernels_is_held_to_its_limit(
    build: Path, name: str, limit: int, is_concurrent: bool
) -> None:
    """It gets its limit, neither more nor less."""
    tenant = replace(ALWAYS_NEW[name], limit=limit)
    (share,) = run(Cell((tenant,), is_concurrent=is_concurrent), build, SECONDS)

    assert limit - TOLERANCE <= share.mean(SETTLING_SECONDS) <= limit + TOLERANCE


def test_processes_that_launch_only_new_kernels_progress_evenly(build: Path) -> None:
    """None is left out, although all wait for the cost of the others' kernels."""
    tenant = Tenant(10, "busy_20", kinds=NEW_KINDS, spread=20, processes=4, reload=1)
    share, _ = run(Cell((tenant, Tenant(100, "busy_1000"))), build, SECONDS)
    part = sum(share.processes) / 4

    assert all(abs(one - part) <= part / 2 for one in share.processes)
