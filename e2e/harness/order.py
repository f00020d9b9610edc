"""
The order of the tests on a real cluster, and which worker of pytest-xdist runs them.

Each worker has a cluster. The tests of that cluster go to whichever worker is free. Tests that start clusters
themselves go to one worker together, and first: they mostly wait.
"""

from collections.abc import Collection
from pathlib import Path

import pytest
from xdist.scheduler import LoadScopeScheduling

E2E = Path(__file__).parents[1]
OWN_CLUSTERS = ("conformance", "controlplane_tests", "dra_tests", "minicluster_tests")
"""The folders of tests that start clusters themselves."""
TOGETHER = (
    "test_node_kinds.py",
    "test_claims_survive.py",
    "test_tokens_survive.py",
    "test_shares_by_claims.py",
    "test_resource_claims.py",
    "test_mig_claims.py",
    "test_both_kinds.py",
)
"""The tests that share what a fixture of their module takes long to make."""
LONGEST = ("test_soak.py", "test_documents.py", *TOGETHER, "test_upgrade.py", "test_takes_over_from_hami.py")
"""The tests that take longest. They start first, so that all workers end at about the same time."""


class Workers(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist has no types
    """
    Give the tests of one `group` to one worker, and each test to the next free one otherwise.

    The mark `xdist_group` would say the same, but pytest-xdist 3.8 does not see it with pytest 9.2.
    """

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def group(node_id: str) -> str:
    """Return the name of the tests that run on the same worker as *node_id*, `e2e/promises/test_a.py::test_b[c]`."""
    test = E2E.parent / node_id.partition("::")[0]
    if starts_clusters(test):
        return "own clusters"
    return test.name if test.name in TOGETHER else node_id


def arrange(items: list[pytest.Item]) -> None:
    """Sort *items* in the order in which they start."""
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
