"""
Each point names a step that there is.
"""

from collections import Counter

import pytest

from harness.clusters.embedded import FAKE_DRIVER
from killpoints.planted import DEFECTS, Defect
from killpoints.points import CHANCE, POINTS, Point, all_points, named
from testbed.launch import owner_and_name

FEWEST = 60


def functions() -> list[object]:
    """Return each point that is the begin of a function."""
    return [pytest.param(point, id=named(part, point)) for part, point in all_points() if ":KILL" not in point.place]


@pytest.mark.parametrize("point", functions())
def test_point_is_a_function_that_there_is(point: Point) -> None:
    """Its name is a text, because only the service that dies there imports it."""
    owner, name = owner_and_name(point.place)

    assert callable(getattr(owner, name))


@pytest.mark.parametrize("part", ["library", "limit hook"])
def test_point_in_native_code_is_a_call_of_the_driver(part: str) -> None:
    """The fake driver ignores the names of calls that it does not have."""
    known = b"".join(path.read_bytes() for path in FAKE_DRIVER.glob("lib*.so.1"))

    assert all(point.place.partition(":")[0].encode() in known for point in POINTS[part])


def test_every_point_has_its_own_name() -> None:
    """There are some in every part, and no part is left out when processes die by chance."""
    names = Counter(named(part, point) for part, point in all_points())

    assert {} == {name: count for name, count in names.items() if count > 1}
    assert len(names) >= FEWEST
    assert POINTS.keys() == {part for part, _ in CHANCE} | {"library", "limit hook"}


@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_planted_defect_changes_a_function_that_there_is(defect: Defect) -> None:
    """And it shows at a point that there is."""
    owner, name = owner_and_name(defect.function)

    assert callable(getattr(owner, name))
    assert defect.step in {point.step for point in POINTS[defect.part]}
