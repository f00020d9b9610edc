"""
Run a Python program as if it had been started itself, with something changed in its process before.

Each module here is a command that makes one change; the program and its arguments end its command line.
"""

import runpy
import sys
from pkgutil import resolve_name
from typing import Any


def run(program: str, *arguments: str) -> None:
    """Run *program*, a script that pip installed, or after `-m` a module, whose name is the first of *arguments*."""
    if program == "-m":
        sys.argv = [*arguments]
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv = [program, *arguments]
        runpy.run_path(program, run_name="__main__")


def owner_and_name(function: str) -> tuple[Any, str]:
    """Return the module or class that has *function*, `module:name` or `module:class.name`, and its name there."""
    module, _, place = function.partition(":")
    owner, _, name = place.rpartition(".")
    return resolve_name(f"{module}:{owner}" if owner else module), name
