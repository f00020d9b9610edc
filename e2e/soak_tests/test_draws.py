"""
What a seed draws, what counts as growth, and which failed Pods are nobody's fault.
"""

from itertools import islice
from pkgutil import resolve_name

import pytest

from soak import real
from soak.cluster import Site
from soak.embedded import SITE
from soak.faults import draw_round, kinds_of
from soak.load import draw_plans, excuse
from soak.planted import DEFECTS, Defect
from soak.usage import SERVICES, Usage, filter_p99_seconds, growths

SOME = Usage(memory_mib=100.0, descriptors=20, threads=8)
HISTOGRAM = """# TYPE hami_scheduler_filter_seconds histogram
hami_scheduler_filter_seconds_bucket{le="0.01",outcome="placed"} 98
hami_scheduler_filter_seconds_bucket{le="0.1",outcome="placed"} 99
hami_scheduler_filter_seconds_bucket{le="+Inf",outcome="placed"} 99
hami_scheduler_filter_seconds_bucket{le="0.01",outcome="refused"} 0
hami_scheduler_filter_seconds_bucket{le="0.1",outcome="refused"} 0
hami_scheduler_filter_seconds_bucket{le="+Inf",outcome="refused"} 1
"""


def test_same_seed_draws_the_same_pods_and_faults() -> None:
    """Another seed draws others, and so does another round."""
    assert list(islice(draw_plans(SITE, 7), 200)) == list(islice(draw_plans(SITE, 7), 200))
    assert draw_round(SITE, 7, 1, 600.0) == draw_round(SITE, 7, 1, 600.0)
    assert list(islice(draw_plans(SITE, 7), 200)) != list(islice(draw_plans(SITE, 8), 200))
    assert draw_round(SITE, 7, 1, 600.0) != draw_round(SITE, 7, 2, 600.0)


@pytest.mark.parametrize("site", [SITE, real.SITE], ids=["embedded", "real"])
def test_every_kind_of_fault_is_drawn(site: Site) -> None:
    """Each round has some of them only."""
    rounds = [{fault.kind for fault in draw_round(site, 1, number, 60.0)} for number in range(40)]

    assert set(kinds_of(site)) == set().union(*rounds)
    assert all(len(kinds) < len(kinds_of(site)) for kinds in rounds)


@pytest.mark.parametrize(
    ("last", "grows"),
    [
        (Usage(159.0, 40, 20), []),
        (Usage(161.0, 41, 21), ["memory", "descriptors", "threads"]),
    ],
    ids=["within the bounds", "beyond them"],
)
def test_growth_is_what_passes_a_bound(last: Usage, grows: list[str]) -> None:
    """Of any service."""
    first = dict.fromkeys(SERVICES, SOME)

    found = list(growths(first, {**first, "plugin": last}))

    assert grows == [sentence.split()[1] for sentence in found]


def test_p99_of_filter_is_over_all_outcomes() -> None:
    """It is the bound of the first bucket with 99 of 100 answers."""
    assert 0.1 == filter_p99_seconds(HISTOGRAM)


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_planted_defect_changes_a_function_that_there_is(defect: Defect) -> None:
    """Its name is a text, because only the service that has the defect imports the function."""
    assert callable(resolve_name(defect.function))


def ended(reason: str, exit_code: int) -> dict[str, object]:
    """Return the status of a container that has ended."""
    return {"state": {"terminated": {"reason": reason, "exitCode": exit_code}}}


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        ({"reason": "UnexpectedAdmissionError"}, "rejected by a kubelet: UnexpectedAdmissionError"),
        ({"containerStatuses": [ended("Unknown", 255)]}, "ended with its Node"),
        ({"containerStatuses": [ended("Completed", 0), ended("Unknown", 255)]}, "ended with its Node"),
        ({"containerStatuses": [ended("Error", 255)]}, ""),
        ({"containerStatuses": [ended("StartError", 128), ended("Unknown", 255)]}, ""),
        ({"containerStatuses": [ended("Error", 137)]}, ""),
        ({}, ""),
    ],
)
def test_pod_that_failed_is_excused_only_if_nobody_is_to_blame(status: dict[str, object], reason: str) -> None:
    """A Node that loses its power takes its programs with it; a hook or a library that ends one is to blame."""
    assert reason == excuse(status)
