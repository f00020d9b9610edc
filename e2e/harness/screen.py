"""
The output of the demo: headings, progress, tables and promises, on a terminal, in a pipe or as a picture.

Owns widths, wrapping and colours, and remembers which promises held. Must never know what the text is about.
"""

import io
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

PAPER_COLUMNS = 118
"""The width of a pipe and of a picture."""
NARROW_COLUMNS = 104
"""Below this width, tables leave out columns."""


@dataclass
class Screen:
    """What was printed, and which promises held."""

    console: Console
    promises: list[tuple[bool, str]] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of_stdout(cls, *, is_recorded: bool) -> "Screen":
        """Return a screen on standard output; *is_recorded* keeps the output for a picture."""
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # a terminal without UTF-8 shows question marks, not a traceback
        width = PAPER_COLUMNS if is_recorded or not sys.stdout.isatty() else None
        return cls(Console(record=is_recorded, width=width, highlight=False))

    @property
    def is_narrow(self) -> bool:
        """Whether tables leave out columns."""
        return self.console.width < NARROW_COLUMNS

    def heading(self, text: str) -> None:
        """Print a heading."""
        self.console.print()
        self.console.print(Text(text, style="bold"))

    def note(self, text: str) -> None:
        """Print one line of progress, with the seconds since the start."""
        self.paragraph(Text(f"  {time.monotonic() - self.started:5.1f} s  ", style="dim"), text)

    def progress(self, text: str, *, lasts: bool = False) -> None:
        """Show what happens now: in one line that is overwritten on a terminal, and in a pipe only what *lasts*."""
        if sys.stderr.isatty():
            print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
        elif text and lasts:
            self.note(text)

    def promise(self, text: str, holds: bool) -> None:
        """Print whether a promise held, and remember it."""
        self.promises.append((holds, text))
        self.paragraph(Text("  ✓ ", style="green") if holds else Text("  ✗ ", style="bold red"), text)

    def paragraph(self, lead: Text, text: str) -> None:
        """Print *text* after *lead*. Wrapped lines are indented by the width of *lead*."""
        margin = Text(" " * len(lead))
        for number, line in enumerate(Text(text).wrap(self.console, self.console.width - len(lead))):
            line.rstrip()
            self.console.print((margin if number else lead) + line, soft_wrap=True)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[str | Text]]) -> None:
        """Print *rows* below *columns*. A column whose name starts with `>` is right-aligned."""
        grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
        for column in columns:
            grid.add_column(column.lstrip(">"), justify="right" if column.startswith(">") else "left", no_wrap=True)
        for row in rows:
            grid.add_row(*row)
        self.console.print(Padding(grid, (0, 0, 0, 2), expand=False))

    def row(self, cells: Iterable[tuple[str | Text, int]], style: str = "") -> None:
        """Print one row of cells with these widths. A text that starts with `>` is right-aligned."""
        line = Text("  ", style=style)
        for cell, width in cells:
            text = cell.copy() if isinstance(cell, Text) else Text(cell.removeprefix(">"))
            text.pad_left(max(0, width - len(text))) if str(cell).startswith(">") else text.pad_right(width - len(text))
            line.append_text(text).append("  ")
        line.rstrip()
        self.console.print(line, no_wrap=True)
