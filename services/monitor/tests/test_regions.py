"""
Open and refused regions: one bad file does not affect the others.
"""

import os
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from hami_monitor.adapters.directories import Directories
from hami_monitor.adapters.regions import Regions
from hami_monitor.decide.containers import ContainerKey, Refusal
from hami_monitor.decide.feedback import FeedbackWrite
from hami_monitor.decide.grants import Grant
from hami_monitor.decide.usage import SLOTS_EACH_SCRAPE
from hamicommon.model import Share
from hamicommon.wire.region.layout import SLOTS
from hamicommon.wire.region.sums import DeviceSums

from .region_files import HookPath, Process, a_region

GOOD, BAD = ContainerKey("p1", "good"), ContainerKey("p2", "bad")


Look = Callable[[], set[ContainerKey]]


@pytest.fixture
def regions(hook_path: HookPath) -> Iterator[Regions]:
    """Return the regions below an empty HOOK_PATH."""
    held = Regions(hook_path.containers)
    yield held
    held.close()


@pytest.fixture
def look(hook_path: HookPath, regions: Regions) -> Look:
    """Return a function that follows the directory, and returns the containers whose regions can be read."""

    def follow() -> set[ContainerKey]:
        listed, _ = Directories(str(hook_path.path)).scan()
        regions.follow(listed)
        return set(regions.states())

    return follow


def test_bad_file_is_refused_and_the_rest_is_read(hook_path: HookPath, regions: Regions, look: Look) -> None:
    """Garbage affects its own container only."""
    hook_path.add("p1_good", a_region())
    hook_path.add("p2_bad", b"garbage")

    assert {GOOD} == look()
    assert {BAD: Refusal.UNKNOWN_LAYOUT} == regions.refusals


def test_refusal_is_logged_once_and_again_after_a_change(hook_path: HookPath, look: Look) -> None:
    """A bad file is tried every round and logged once; another problem is logged again."""
    region = hook_path.add("p2_bad", b"garbage of twelve bytes or more")

    with capture_logs() as logs:
        for _ in range(3):
            look()
        region.write_bytes(b"short")
        look()

    assert [("warning", "p2_bad"), ("warning", "p2_bad")] == [(log["log_level"], log["container"]) for log in logs]
    assert logs[0]["error"] != logs[1]["error"]


def test_region_appears_when_the_library_has_made_it(hook_path: HookPath, regions: Regions, look: Look) -> None:
    """A container that has not used its device has no region, an empty one, or a cleared one."""
    hook_path.add("p1_good")
    assert (set(), {}) == (look(), regions.refusals)

    region = hook_path.add("p1_good", b"")
    assert (set(), {}) == (look(), regions.refusals)

    region.write_bytes(a_region())
    assert ({GOOD}, {}) == (look(), regions.refusals)


def test_region_that_was_cleared_for_the_next_run_shows_nothing(
    hook_path: HookPath, regions: Regions, look: Look
) -> None:
    """The container restarts, and its library has not started yet; that is no refusal."""
    region = hook_path.add("p1_good", a_region())
    look()
    region.write_bytes(bytes(2008953))

    assert ({}, {}) == (regions.states(), regions.refusals)


def test_region_made_anew_under_the_same_name_is_read(hook_path: HookPath, regions: Regions, look: Look) -> None:
    """A restarted container writes a new file, and the old values are gone."""
    region = hook_path.add("p1_good", a_region(recent_kernel=1))
    look()
    region.unlink()
    region.write_bytes(a_region(recent_kernel=7))
    look()

    assert 7 == regions.states()[GOOD].recent_kernel


def test_region_that_is_gone_is_let_go(hook_path: HookPath, regions: Regions, look: Look) -> None:
    """It is closed when the file, the directory or everything is removed."""
    region = hook_path.add("p1_good", a_region())
    look()
    region.unlink()

    assert (set(), 0) == (look(), len(regions))


def test_too_many_files_are_refused(hook_path: HookPath, regions: Regions, look: Look) -> None:
    """With two regions and the library, the region in use is unknown."""
    hook_path.add("p1_good", a_region(), "a.cache")
    hook_path.add("p1_good", a_region(), "b.cache")

    assert (set(), {GOOD: Refusal.TOO_MANY_FILES}) == (look(), regions.refusals)


def test_file_shrunk_between_round_and_scrape_is_refused(hook_path: HookPath, regions: Regions, look: Look) -> None:
    """The scrape leaves it out, a store is no error, and a later round opens the repaired file."""
    region = hook_path.add("p1_good", a_region())
    look()
    os.truncate(region, 1000)

    regions.store({GOOD: FeedbackWrite(recent_kernel=-1)})
    assert {} == regions.states()
    assert {GOOD: Refusal.TRUNCATED} == regions.refusals

    region.write_bytes(a_region())
    assert {GOOD} == look()


def test_stores_are_counted_by_field(hook_path: HookPath, regions: Regions, look: Look) -> None:
    """A store into a missing region is not counted."""
    hook_path.add("p1_good", a_region())
    look()

    regions.store({GOOD: FeedbackWrite(recent_kernel=1, utilization_switch=0), BAD: FeedbackWrite(recent_kernel=1)})
    regions.store({GOOD: FeedbackWrite(recent_kernel=0)})

    assert {"recent_kernel": 2, "utilization_switch": 1} == regions.writes


def test_region_with_too_many_processes_is_not_read_and_the_rest_is(
    hook_path: HookPath, regions: Regions, look: Look
) -> None:
    """What one scrape reads is limited, and small regions come first."""
    process = Process({0: (1, 2, 3, 0, 6)})
    forged = [ContainerKey(f"f{index}", "main") for index in range(SLOTS_EACH_SCRAPE // SLOTS + 1)]
    content = a_region(processes=(process,) * SLOTS)
    for key in forged:
        hook_path.add(str(key), content)
    hook_path.add("p1_good", a_region(processes=(process,)))
    look()
    grant = Grant((Share("GPU-a", "NVIDIA", 1000, 0),))

    with capture_logs() as logs:
        for _ in range(2):
            found = regions.usages(dict.fromkeys([GOOD, *forged], grant))

    assert DeviceSums(1, 2, 3, 6) == found[GOOD].devices["GPU-a"]
    assert [Refusal.TOO_MANY_PROCESSES] * len(logs) == list(regions.refusals.values())
    assert 2 == len(logs)
    assert len(forged) - 2 == len(found) - 1
