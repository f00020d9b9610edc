"""Which worker runs a test on a real cluster, and when."""

import pytest

from harness.order import E2E, LONGEST, OWN_CLUSTERS, starts_clusters, turn

TESTS = sorted(E2E.rglob("test_*.py"))


def test_promises_are_shared_among_the_workers() -> None:
    """A worker that gets them all would take as long as all clusters together."""
    promises = [test for test in TESTS if "promises" in test.parts]

    assert promises
    assert [] == [test.name for test in promises if starts_clusters(test)]


@pytest.mark.parametrize("folder", OWN_CLUSTERS)
def test_folders_that_start_clusters_come_first(folder: str) -> None:
    """Their tests mostly wait."""
    tests = [test for test in TESTS if starts_clusters(test) and folder in test.parts]

    assert tests
    assert {-1} == {turn(test, ()) for test in tests}


def test_longest_tests_exist() -> None:
    """A renamed one would start last."""
    assert set(LONGEST) <= {test.name for test in TESTS}


def test_tests_with_other_settings_come_before_the_others() -> None:
    """A test of the usual settings then finds the cluster as the one before left it."""
    test = E2E / "promises/placement/test_a.py"

    assert turn(test, {"cluster_of"}) < turn(test, {"cluster"})
