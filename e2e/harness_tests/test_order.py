"""Which worker runs a test on a real cluster, and when."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.order import E2E, LONGEST, OWN_CLUSTERS, TOGETHER, group, starts_clusters, turn

TESTS = sorted(E2E.rglob("test_*.py"))


def workers_of_folders(place: Path) -> set[tuple[str, str]]:
    """Run the tests in the folder *place*/e2e on two workers. Returns pairs of a worker and a folder."""
    options = ("--numprocesses=2", "--dist=loadscope", "--no-loadscope-reorder", "--verbose", f"--rootdir={place}")
    settings = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        (sys.executable, "-m", "pytest", *options, "e2e"),
        cwd=place,
        env={**settings, "PYTHONPATH": str(E2E)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return set(re.findall(r"\[(gw\d)\].* PASSED e2e/(\w+)/", run.stdout))


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


def test_pytest_gives_the_tests_of_a_group_to_one_worker(tmp_path: Path) -> None:
    """pytest-xdist asks for the group of each test, and the other worker does not wait."""
    (tmp_path / "conftest.py").write_text(
        "from harness import order\n"
        "def pytest_xdist_make_scheduler(config, log):\n"
        "    return order.Workers(config, log)\n"
    )
    for folder in ("conformance", "promises"):
        (tmp_path / "e2e" / folder).mkdir(parents=True)
        tests = "".join(f"def test_{number}(): pass\n" for number in range(6))
        (tmp_path / f"e2e/{folder}/test_{folder}.py").write_text(tests)
    ran = workers_of_folders(tmp_path)

    assert 1 == len({worker for worker, folder in ran if folder == "conformance"})
    assert 2 == len({worker for worker, _ in ran})


def test_each_promise_runs_on_the_worker_that_is_free() -> None:
    """A whole module on one worker would keep the others waiting at the end."""
    test = "e2e/promises/placement/test_preemption.py"

    assert group(f"{test}::test_a") != group(f"{test}::test_b")


def test_tests_with_other_settings_come_before_the_others() -> None:
    """A test of the usual settings then finds the cluster as the one before left it."""
    test = E2E / "promises/placement/test_a.py"

    assert turn(test, {"cluster_of"}) < turn(test, {"cluster"})
