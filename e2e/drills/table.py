"""
The tables of the drills in SECURITY.md: `PYTHONPATH=e2e .venv/bin/python -m drills.table` writes them.

Owns the order of the rows. `test_table` fails where the page differs from the drills.
"""

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drills.promises import BOTH, DMEM, LIBRARY, MIG, MISC, MPS, MPS_REQUIRED, Drill

PAGE = Path(__file__).resolve().parents[2] / "SECURITY.md"


@dataclass(frozen=True)
class Table:
    """The drills on one part of a share."""

    what: str
    modules: tuple[str, ...]
    holders: tuple[str, ...]

    @property
    def begin(self) -> str:
        """The line of the page before it."""
        return f"<!-- drills: {self.what} -->\n"

    @property
    def end(self) -> str:
        """The line of the page after it."""
        return f"<!-- end of drills: {self.what} -->\n"

    def tests(self) -> Iterator[Callable[..., Any]]:
        """Yield the tests, in the order of the rows."""
        for name in self.modules:
            module = importlib.import_module(f"drills.test_{name}")
            functions = [value for value in vars(module).values() if inspect.isfunction(value)]
            yield from (value for value in functions if value.__name__.startswith("test_"))

    def render(self) -> str:
        """Return the table."""
        head = f"| Program | {' | '.join(f'`{holder}`' for holder in self.holders)} | Because |\n"
        rows = "".join(self._row(test.drill) for test in self.tests())  # type: ignore[attr-defined]
        return f"{head}|{'---|' * (len(self.holders) + 2)}\n{rows}"

    def _row(self, drill: Drill) -> str:
        promises = " | ".join(str(drill.promises[holder]) for holder in self.holders)
        return f"| {drill.program} | {promises} | {drill.because} |\n"


TABLES = (
    Table("memory", ("programs", "environment", "region", "pods"), (LIBRARY, DMEM, MISC, BOTH)),
    Table("compute", ("compute",), (LIBRARY, MPS, MPS_REQUIRED, MIG)),
)


def replaced(page: str) -> str:
    """Return *page* with the present tables. Raises: ValueError if it has no place for one."""
    for table in TABLES:
        before, found, rest = page.partition(table.begin)
        _, ended, after = rest.partition(table.end)
        if not found or not ended:
            raise ValueError(f"{PAGE} needs the lines {table.begin.strip()} and {table.end.strip()}")
        page = before + table.begin + table.render() + table.end + after
    return page


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
