"""
Run a Python program that is killed where a file says: before a call of one of its functions, or before a line.

`python -m testbed.launch.killed_when_told ORDER FUNCTIONS PROGRAM ARGUMENTS...`. *FUNCTIONS*, `module:name` or
`module:class.name` with commas between them, are those that may be named. The file *ORDER* holds one of

- `FUNCTION N`: the process is killed before the Nth call of *FUNCTION* from now on.
- `PACKAGES N`: a process that is started with it is killed before the Nth line that it runs of these packages. They
  have commas between them.

Right before it dies, the process renames the file to `ORDER.met`. So the next one goes on, and everybody can see where
this one died.
"""

import os
import signal
import sys
import threading
from collections.abc import Callable
from functools import wraps
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from testbed.launch import owner_and_name, run

MET = ".met"
"""The end of the name of an order that was carried out."""


def main() -> None:
    """Prepare the functions, or count lines, and run the program."""
    _, order, functions, *program = sys.argv
    where, number = _read(order)
    if where and ":" not in where:
        _count_lines(order, where.split(","), number)
    else:
        for function in filter(None, functions.split(",")):
            owner, name = owner_and_name(function)
            setattr(owner, name, _killing(getattr(owner, name), function, order))
    run(*program)


def _killing(function: Callable[..., Any], place: str, order: str) -> Callable[..., Any]:
    calls = 0
    """Since the order was given."""

    @wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        nonlocal calls
        where, number = _read(order)
        calls = calls + 1 if where == place else 0
        if calls and calls >= number:
            _die(order)
        return function(*arguments, **keywords)

    return called


def _count_lines(order: str, packages: list[str], number: int) -> None:
    """Die before the line *number* of *packages*, in any thread."""
    folders = tuple(folder for package in packages for folder in _folders(package))
    lines = count(1)

    def on_line(_frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line" and next(lines) >= number:
            _die(order)
        return on_line

    def on_call(frame: FrameType, _event: str, _argument: Any) -> Any:
        return on_line if frame.f_code.co_filename.startswith(folders) else None

    threading.settrace(on_call)
    sys.settrace(on_call)


def _folders(package: str) -> list[str]:
    spec = find_spec(package)
    return [f"{folder}{os.sep}" for folder in (spec.submodule_search_locations or ())] if spec else []


def _read(order: str) -> tuple[str, int]:
    """Return where to die, and at which time of it; empty if there is no order."""
    try:
        with open(order) as file:  # noqa: PTH123 - a method of `Path` may be one of the functions
            where, _, number = file.read().rpartition(" ")
    except FileNotFoundError:
        return "", 0
    return where, int(number)


def _die(order: str) -> None:
    os.rename(order, order + MET)  # noqa: PTH104 - as above
    os.kill(os.getpid(), signal.SIGKILL)


def order(file: Path, where: str, number: int) -> None:
    """Write an order to *file*, which appears with its whole content."""
    draft = file.with_name(f"{file.name}.new")
    draft.write_text(f"{where} {number}")
    draft.rename(file)


if __name__ == "__main__":
    main()
