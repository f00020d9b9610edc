"""
The page of neighbours is what the last run has found, and that run was of the versions and the tests of today.
"""

import ast
from importlib import import_module
from pathlib import Path

from neighbours.page import PAGE, Neighbour, kept, page

from .pages import ROOT

TESTS = sorted((ROOT / "e2e/neighbours_tests").glob("test_*.py"))


def promises(path: Path) -> set[str]:
    """Return the first line of each test of a module."""
    tree = ast.parse(path.read_text())
    tests = [node for node in tree.body if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)]
    found = [ast.get_docstring(test) or "" for test in tests if test.name.startswith("test_")]
    return {docstring.splitlines()[0].rstrip(".") for docstring in found}


def test_page_has_what_the_last_run_has_found() -> None:
    """Nobody edits it by hand."""
    text = PAGE.read_text(encoding="utf-8")

    assert text == page(text, kept())


def test_last_runs_are_of_the_versions_and_the_promises_of_today() -> None:
    """After a new version or a new test, the page needs a new run."""
    expected: dict[Neighbour, set[str]] = {}
    for path in TESTS:
        neighbour = import_module(f"neighbours_tests.{path.stem}").NEIGHBOUR
        expected.setdefault(neighbour, set()).update(promises(path))

    assert expected == {run.neighbour: set(run.statements) for run in kept()}
