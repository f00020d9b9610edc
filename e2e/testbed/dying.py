"""
Run a Python program that is killed just before it calls one of its functions.

`python -m testbed.dying MARKER FUNCTION PROGRAM ARGUMENTS...` runs *PROGRAM*, a script that pip installed. While the
file *MARKER* exists, the first call of *FUNCTION* (`module:name` or `module:class.name`) kills the process instead.
Must never know what the program does.
"""

import importlib
import os
import runpy
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any


def main() -> None:
    """Prepare the function, and run the program as if it had been started itself."""
    _, marker, function, program, *arguments = sys.argv
    module, _, place = function.partition(":")
    *owners, name = place.split(".")
    owner: Any = importlib.import_module(module)
    for each in owners:
        owner = getattr(owner, each)
    setattr(owner, name, _deadly(getattr(owner, name), Path(marker)))
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


def _deadly(function: Callable[..., Any], marker: Path) -> Callable[..., Any]:
    @wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        if os.path.lexists(marker):  # `Path` may be what is deadly
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **keywords)

    return called


if __name__ == "__main__":
    main()
