"""
Read and show again until Ctrl-C: a screen that never scrolls on a terminal, else one answer after the other.

A reading that fails changes nothing on the screen but a line that says since when it is old, and why.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Generic, NoReturn, TypeVar

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from hamicommon.cli.terminal import safe
from kubectl_hami.commands.command_line import warn
from kubectl_hami.read.source import ReadError
from kubectl_hami.show.table import console

T = TypeVar("T")

_LEAST_SECONDS: Final = 0.1
_MOST_SECONDS: Final = 86_400.0
_PROBLEMS_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Rows:
    """What a screen shows: a number of rows, of which the first ones can be drawn."""

    count: int
    draw: Callable[[int], RenderableType]
    """Returns the first so many rows, with their heads."""


@dataclass(frozen=True, slots=True)
class Watched(Generic[T]):
    """How to read, and how to show what was read."""

    read: Callable[[list[str]], T]
    """Adds to a list what could not be read. May raise ReadError."""
    show: Callable[[T], None]
    """Prints it."""
    rows: Callable[[T, int], Rows]
    """Returns it for a screen of so many columns."""


def add_watch(command: argparse.ArgumentParser, seconds: float) -> None:
    """Add -w and --interval, which is *seconds* by default."""
    command.add_argument("-w", "--watch", action="store_true", help="read again until Ctrl-C")
    text = f"of -w; default: {seconds:g}"
    command.add_argument("--interval", type=_seconds, default=seconds, metavar="SECONDS", help=text)


def _seconds(text: str) -> float:
    """Return a span of at least a tenth of a second. argparse makes a sentence of the error."""
    found = float(text)
    if not _LEAST_SECONDS <= found <= _MOST_SECONDS:
        raise ValueError(text)
    return found


def watch(watched: Watched[T], options: argparse.Namespace) -> NoReturn:
    """Read and show every `options.interval` seconds. The first reading has to succeed. Raises: ReadError."""
    screen = console()
    if options.output in {"json", "yaml"} or not screen.is_terminal:
        _print(watched, options.interval)
    problems: list[str] = []
    found, read_at, failure = watched.read(problems), datetime.now(), ""
    with Live(console=screen, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            under = below(problems, read_at, failure)
            live.update(fitted(screen, watched.rows(found, screen.width), under), refresh=True)
            time.sleep(options.interval)
            fresh: list[str] = []
            try:
                found, read_at, failure = watched.read(fresh), datetime.now(), ""
                problems = fresh
            except ReadError as error:
                failure = str(error)


def _print(watched: Watched[T], interval_seconds: float) -> NoReturn:
    is_first = True
    while True:
        problems: list[str] = []
        try:
            watched.show(watched.read(problems))
        except ReadError as error:
            if is_first:
                raise
            problems.append(str(error))
        is_first = False
        sys.stdout.flush()
        warn(problems)
        time.sleep(interval_seconds)


def below(problems: Sequence[str], read_at: datetime, failure: str) -> list[Text]:
    """Return the lines that stand below the rows: what is not known, and since when the rows are old."""
    found = [Text(safe(problem), style="dim") for problem in problems[:_PROBLEMS_SHOWN]]
    if len(problems) > _PROBLEMS_SHOWN:
        found.append(Text(f"and {len(problems) - _PROBLEMS_SHOWN} more problems", style="dim"))
    if failure:
        found.append(Text(f"as of {read_at:%H:%M:%S}; it cannot be read now: {safe(failure)}", style="red"))
    return found


def fitted(screen: Console, rows: Rows, under: Sequence[Text]) -> RenderableType:
    """Return as many *rows* as *screen* has room for, how many there are beyond it, and the lines *under* them."""
    for line in under:
        line.no_wrap, line.overflow = True, "ellipsis"
    room = screen.height - len(under)
    shown = min(rows.count, max(0, room))
    while shown and _lines(screen, rows.draw(shown)) + (shown < rows.count) > room:
        shown -= 1
    hidden = rows.count - shown
    more = [Text(f"and {hidden} more {'row' if hidden == 1 else 'rows'}", style="dim")] if hidden else []
    return Group(rows.draw(shown), *more, *under)


def _lines(screen: Console, found: RenderableType) -> int:
    return len(screen.render_lines(found, pad=False))
