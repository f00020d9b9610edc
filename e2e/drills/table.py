"""
The table of the drills in SECURITY.md: `PYTHONPATH=e2e .venv/bin/python -m drills.table` writes it.

Owns the order of the rows. `test_table` fails where the page differs from the drills.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from drills.promises import BOTH, DRIVER, LIBRARY, Drill

PAGE = Path(__file__).resolve().parents[2] / "SECURITY.md"
MODULES = ("programs", "environment", "region", "pods")
HOLDERS = (LIBRARY, DRIVER, BOTH)
HEAD = f"| Program | {' | '.join(f'`{holder}`' for holder in HOLDERS)} | Because |\n|---|---|---|---|---|\n"
BEGIN, END = "<!-- drills -->\n", "<!-- end of drills -->\n"


def every_test() -> Iterator[Callable[..., Any]]:
    """Yield the tests of all modules, in the order of the rows."""
    for name in MODULES:
        module = importlib.import_module(f"drills.test_{name}")
        functions = [value for value in vars(module).values() if inspect.isfunction(value)]
        yield from (value for value in functions if value.__name__.startswith("test_"))


def render() -> str:
    """Return the table."""
    return HEAD + "".join(_row(test.drill) for test in every_test())  # type: ignore[attr-defined]


def _row(drill: Drill) -> str:
    promises = " | ".join(str(drill.promises[holder]) for holder in HOLDERS)
    return f"| {drill.program} | {promises} | {drill.because} |\n"


def replaced(page: str) -> str:
    """Return *page* with the present table. Raises: ValueError if it has no place for one."""
    before, found, rest = page.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{PAGE} needs the lines {BEGIN.strip()} and {END.strip()}")
    return before + BEGIN + render() + END + after


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
