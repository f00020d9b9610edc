"""
A watched screen: it goes on where a reading fails, and says what it does not show.
"""

import argparse
import io
import sys

import pytest
from rich.console import Console
from rich.text import Text

from kubectl_hami.commands import watch as watching
from kubectl_hami.commands.watch import Rows, Watched, fitted, watch
from kubectl_hami.read.source import ReadError
from kubectl_hami.show.table import table


def a_screen(height: int = 10) -> Console:
    """Return a terminal of 80 columns that keeps what it gets."""
    return Console(file=io.StringIO(), force_terminal=True, no_color=True, color_system=None, width=80, height=height)


def text_of(screen: Console) -> str:
    """Return all that was printed."""
    assert isinstance(screen.file, io.StringIO)
    return screen.file.getvalue()


def rows_of(names: list[str]) -> Rows:
    """Return a row for each name."""
    return Rows(len(names), lambda count: table(["NAME"], [(name,) for name in names[:count]]))


@pytest.mark.parametrize(
    ("count", "shown", "more"), [(3, 3, ""), (9, 9, ""), (10, 8, "and 2 more rows"), (1000, 8, "and 992 more rows")]
)
def test_rows_beyond_the_screen_are_counted(count: int, shown: int, more: str) -> None:
    """What scrolls out of sight would be taken for all there is."""
    screen = a_screen()
    screen.print(fitted(screen, rows_of([f"row-{number}" for number in range(count)]), []))

    lines = text_of(screen).splitlines()
    assert shown == sum(line.startswith("row-") for line in lines)
    assert more == (lines[-1].strip() if more else "")
    assert len(lines) <= 10


def test_rows_of_several_lines_leave_room_for_what_stands_below() -> None:
    """A cause may wrap."""
    screen = a_screen()
    rows = Rows(6, lambda count: table(["~WHY"], [("word " * 30,)] * count))

    screen.print(fitted(screen, rows, [Text("below")]))

    lines = [line.strip() for line in text_of(screen).splitlines()]
    assert ["and 3 more rows", "below"] == lines[-2:]
    assert len(lines) <= 10


def a_watched(*found: list[str] | ReadError) -> Watched[list[str]]:
    """Return readings that give *found*, then Ctrl-C."""
    left = list(found)

    def read(problems: list[str]) -> list[str]:
        if not left:
            raise KeyboardInterrupt
        each = left.pop(0)
        if isinstance(each, ReadError):
            raise each
        problems.append(f"{each[0]} is not all")
        return each

    return Watched(
        read, lambda names: sys.stdout.writelines(f"{name}\n" for name in names), lambda names, _: rows_of(names)
    )


OPTIONS = argparse.Namespace(output="table", interval=0.0)
FAILURE = ReadError("/api/v1/pods", "the API server does not answer")


def test_failed_reading_leaves_the_last_one_and_says_since_when(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next one that succeeds takes the sentence away."""
    screen = a_screen()
    monkeypatch.setattr(watching, "console", lambda: screen)

    with pytest.raises(KeyboardInterrupt):
        watch(a_watched(["first"], FAILURE, ["second"]), OPTIONS)

    first, failed, second = text_of(screen).split("\x1b[H")[2:]
    assert "first is not all" in first
    assert "cannot be read now" not in first + second
    assert "it cannot be read now: /api/v1/pods: the API server" in failed
    assert "as of " in failed
    assert "first" in failed
    assert "second" in second


def test_first_reading_that_fails_is_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to go on with."""
    for screen in (a_screen(), Console(file=io.StringIO())):
        monkeypatch.setattr(watching, "console", lambda found=screen: found)

        with pytest.raises(ReadError):
            watch(a_watched(FAILURE), OPTIONS)


def test_pipe_gets_one_answer_after_the_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What fails is said on stderr, and reading goes on."""
    monkeypatch.setattr(watching, "console", lambda: Console(file=io.StringIO()))

    with pytest.raises(KeyboardInterrupt):
        watch(a_watched(["first"], FAILURE, ["second"]), OPTIONS)

    said = capsys.readouterr()
    assert "first\nsecond\n" == said.out
    assert "kubectl hami: /api/v1/pods: the API server does not answer\n" in said.err
