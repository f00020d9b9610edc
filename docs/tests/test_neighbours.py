"""
The page of neighbours shows the versions that its check runs.
"""

import ast

from neighbours.programs import ALERTMANAGER_VERSION, PROMETHEUS_VERSION

from .pages import DOCS, ROOT

PAGE = (DOCS / "neighbours.md").read_text()
TESTS = ROOT / "e2e/neighbours_tests"


def promises() -> set[str]:
    """Return the first line of each neighbour's test."""
    trees = [ast.parse(path.read_text()) for path in TESTS.glob("test_*.py")]
    tests = [node for tree in trees for node in tree.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)]
    found = [ast.get_docstring(test) or "" for test in tests if test.name.startswith("test_")]
    return {docstring.splitlines()[0].rstrip(".") for docstring in found}


def test_page_is_of_the_versions_that_are_built() -> None:
    """After a new version, the table needs a new run."""
    assert f"Prometheus {PROMETHEUS_VERSION}, Alertmanager {ALERTMANAGER_VERSION}" in PAGE


def test_page_has_each_promise() -> None:
    """After a new test, the table needs a new run."""
    assert promises()
    assert {promise for promise in promises() if promise not in PAGE} == set()
