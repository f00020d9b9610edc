"""
When a finding counts.
"""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami_monitor.decide.watchdog.confirmation import LASTING_SECONDS, Seen, see
from hami_monitor.decide.watchdog.findings import Evidence, Finding, Kind, Program

from .values import a_place

FINDINGS = [Finding(kind, a_place()) for kind in (Kind.LIBRARY_NOT_LOADED, Kind.NOT_IN_REGION)]
EVIDENCE = [Evidence(finding, Program(pid, 1, 1)) for finding in FINDINGS for pid in (50, 51)]
Readings = Sequence[tuple[float, frozenset[Evidence]]]
"""The time of each reading and its evidence."""


def after(readings: Readings) -> Seen:
    """Return what is known after *readings*."""
    seen = Seen()
    for now_seconds, evidence in readings:
        seen = see(seen, evidence, now_seconds)
    return seen


def test_finding_counts_from_the_second_reading_that_is_late_enough() -> None:
    """Not from the first, and not from one soon after."""
    first, second, third = ((seconds, frozenset(EVIDENCE[:1])) for seconds in (0.0, 2.9, 3.0))

    assert [(), (), (FINDINGS[0],)] == [
        tuple(after(readings).confirmed) for readings in ([first], [first, second], [first, second, third])
    ]
    assert [False, False, True] == [after(some).is_settled for some in ([first], [first, second], [first, third])]


def test_processes_that_follow_each_other_are_no_finding() -> None:
    """Each was seen while it started or ended."""
    readings = [(float(at), frozenset({EVIDENCE[at % 2]})) for at in range(0, 60, 1)]

    assert frozenset() == after(readings).confirmed


def test_finding_stays_while_one_process_succeeds_another() -> None:
    """Nothing new is reported for a container that goes on."""
    lasting = [(float(at), frozenset({EVIDENCE[0]})) for at in range(4)]

    assert {FINDINGS[0]} == after([*lasting, (4.0, frozenset({EVIDENCE[1]}))]).confirmed
    assert frozenset() == after([*lasting, (4.0, frozenset())]).confirmed


steps = st.lists(st.tuples(st.floats(0.1, 5), st.frozensets(st.sampled_from(EVIDENCE))), max_size=12)


def in_time(gaps: Readings) -> Readings:
    """Return readings at the sums of *gaps*."""
    seconds, result = 0.0, []
    for gap, evidence in gaps:
        seconds += gap
        result.append((seconds, evidence))
    return result


@given(steps)
@pytest.mark.property
def test_only_what_lasted_is_confirmed(gaps: Readings) -> None:
    """Behind each confirmed finding is one program that was in every reading of three seconds."""
    readings = in_time(gaps)
    seen = after(readings)

    spans = [
        (
            readings[end][0] - readings[start][0],
            frozenset.intersection(*(each for _, each in readings[start : end + 1])),
        )
        for end in range(len(readings))
        for start in range(end)
    ]
    lasted = {one.finding for seconds, common in spans if seconds >= LASTING_SECONDS for one in common}
    assert seen.confirmed <= lasted
    assert seen.confirmed <= {one.finding for one in (readings[-1][1] if readings else ())}


@given(steps)
@pytest.mark.property
def test_what_is_in_all_readings_is_confirmed(gaps: Readings) -> None:
    """Whatever else comes and goes."""
    readings = [(seconds, evidence | {EVIDENCE[3]}) for seconds, evidence in in_time(gaps)]
    is_long = bool(readings) and readings[-1][0] - readings[0][0] >= LASTING_SECONDS

    assert not is_long or EVIDENCE[3].finding in after(readings).confirmed
