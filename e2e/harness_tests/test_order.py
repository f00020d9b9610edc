"""Which worker runs a test on a real cluster, and when."""

import pytest

from harness.order import E2E, LONGEST, OWN_CLUSTERS, TOGETHER, group, starts_clusters, turn

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


@pytest.mark.parametrize("name", TOGETHER)
def test_tests_of_one_module_that_belong_together_run_on_one_worker(name: str) -> None:
    """Each worker would make again what the fixture of the module makes."""
    promises = [test.relative_to(E2E.parent) for test in TESTS if test.name == name and not starts_clusters(test)]

    assert promises
    for test in promises:
        assert group(f"{test}::test_a") == group(f"{test}::test_b[kind]")


def test_tests_that_start_clusters_run_on_one_worker() -> None:
    """Together they take as long as the others on one of the other workers."""
    groups = {group(f"{test.relative_to(E2E.parent)}::test_a") for test in TESTS if starts_clusters(test)}

    assert 1 == len(groups)


def test_each_promise_runs_on_the_worker_that_is_free() -> None:
    """A whole module on one worker would keep the others waiting at the end."""
    test = "e2e/promises/placement/test_preemption.py"

    assert group(f"{test}::test_a") != group(f"{test}::test_b")


def test_tests_with_other_settings_come_before_the_others() -> None:
    """A test of the usual settings then finds the cluster as the one before left it."""
    test = E2E / "promises/placement/test_a.py"

    assert turn(test, {"cluster_of"}) < turn(test, {"cluster"})
