"""
Tables that align, in kubectl's style: no lines, capitals above.

Neighbours: rich lays out. Colour is only for a terminal, and `NO_COLOR` turns it off.
"""

import sys
from collections.abc import Iterable, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Column, Table
from rich.text import Text

from hamicommon.cli.terminal import safe

CELL_CHARACTERS: Final = 1000
"""A longer cell is cut. Names of Kubernetes have at most 253 characters."""
_GAP: Final = 3
"""Blanks between columns."""
_WRAPPED_CHARACTERS: Final = 20
"""The least characters in a line of a text that wraps."""

Cell = str | Text


class WholeTable(Table):
    """A table that is never cut: a narrow terminal wraps its lines, as with kubectl."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the lines. Texts wrap as long as the other columns leave them room."""
        width = options.max_width
        if self.least_width > width:
            width = sum(_longest(column) for column in self.columns) + self._gaps
        return super().__rich_console__(console, options.update_width(max(options.max_width, width)))

    @property
    def least_width(self) -> int:
        """The width in which nothing is cut."""
        return sum(_least(column) for column in self.columns) + self._gaps

    @property
    def _gaps(self) -> int:
        return _GAP * (len(self.columns) - 1)


def _longest(column: Column) -> int:
    """Return the width of the longest cell."""
    return max(cell_len(str(cell)) for cell in (column.header, *column.cells))


def _least(column: Column) -> int:
    """Return the width that *column* needs, less than the longest cell if its text wraps."""
    return _longest(column) if column.no_wrap else min(_longest(column), _WRAPPED_CHARACTERS)


def table(heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> WholeTable:
    """Return *rows* under *heads*; below a head with `>` numbers stand at the right, below one with `~` text wraps."""
    found = WholeTable(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="dim")
    for head in heads:
        wraps = head.startswith("~")
        found.add_column(
            head.lstrip(">~"),
            justify="right" if head.startswith(">") else "left",
            no_wrap=not wraps,
            overflow="fold" if wraps else "crop",
        )
    for row in rows:
        found.add_row(*map(_shown, row))
    return found


def _shown(cell: Cell) -> Text:
    """Return *cell* without what a terminal would obey. Every text of others comes by here."""
    found = Text(cell) if isinstance(cell, str) else cell
    found.plain = safe(found.plain[:CELL_CHARACTERS])
    return found


def console(*, is_error: bool = False) -> Console:
    """Return where tables go: as wide as the terminal, or as wide as they are in a file or a pipe."""
    found = Console(stderr=is_error, highlight=False, emoji=False, markup=False)
    if not found.is_terminal:
        found.width = 10_000
    return found


def put(found: Table, *, has_heads: bool = True) -> None:
    """Print a table; in a file or a pipe no line ends in blanks."""
    found.show_header = has_heads
    target = console()
    if target.is_terminal:
        target.print(found, crop=False)
        return
    with target.capture() as captured:
        target.print(found)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))


def mib(amount: int | None) -> str:
    """Return an amount of memory, `-` if it is unknown."""
    return "-" if amount is None else str(amount)


def percent(amount: float | None) -> str:
    """Return a part, `-` if it is unknown."""
    return "-" if amount is None else f"{amount:.0f}"


def seconds(amount: float | None) -> str:
    """
    Return a span in the largest unit that says enough, `-` if it is unknown.

    >>> [seconds(amount) for amount in (None, 0, 0.4, 59, 150, 7300, 200000)]
    ['-', '0s', '0.4s', '59s', '2m30s', '2h1m', '2d7h']
    """
    if amount is None:
        return "-"
    if 0 < amount < 10:
        return f"{amount:.1f}s"
    whole = int(amount)
    for unit, small, unit_seconds, small_seconds in (("d", "h", 86400, 3600), ("h", "m", 3600, 60), ("m", "s", 60, 1)):
        if whole >= unit_seconds:
            rest = whole % unit_seconds // small_seconds
            return f"{whole // unit_seconds}{unit}{f'{rest}{small}' if rest else ''}"
    return f"{whole}s"
