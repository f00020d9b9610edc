"""
The order of the tests on a real cluster, and which worker of pytest-xdist runs them.

Each worker has a cluster. The tests of that cluster go to whichever worker is free. Tests that start clusters
themselves go to one worker together, and first: they mostly wait.
"""

from collections.abc import Collection
from pathlib import Path

import pytest

E2E = Path(__file__).parents[1]
OWN_CLUSTERS = ("conformance", "controlplane_tests", "minicluster_tests")
"""The folders of tests that start clusters themselves."""
LONGEST = ("test_documents.py", "test_upgrade.py", "test_takes_over_from_hami.py")
"""The tests that take longest. They start first, so that all workers end at about the same time."""


def arrange(items: list[pytest.Item]) -> None:
    """Sort *items*, and mark those for one worker."""
    for item in items:
        if starts_clusters(item.path):
            item.add_marker(pytest.mark.xdist_group("own-clusters"))
    items.sort(key=lambda item: turn(item.path, getattr(item, "fixturenames", ())))


def starts_clusters(test: Path) -> bool:
    """Return whether the file *test* starts clusters itself."""
    return test.relative_to(E2E).parts[0] in OWN_CLUSTERS


def turn(test: Path, fixtures: Collection[str]) -> int:
    """Return the sort key of a test: those with clusters, the longest, those with other settings, all others."""
    if starts_clusters(test):
        return -1
    if test.name in LONGEST:
        return LONGEST.index(test.name)
    return len(LONGEST) + (0 if "cluster_of" in fixtures else 1)
