"""
Run a Python program that is killed just before it calls one of its functions.

`python -m testbed.launch.kill_before_call MARKER FUNCTION PROGRAM ARGUMENTS...`: while the file *MARKER* exists, the
first call of *FUNCTION* (`module:name` or `module:class.name`) kills the process instead.
"""

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

from testbed.launch import owner_and_name, run


def main() -> None:
    """Prepare the function, and run the program."""
    _, marker, function, *program = sys.argv
    owner, name = owner_and_name(function)
    setattr(owner, name, _killing(getattr(owner, name), Path(marker)))
    run(*program)


def _killing(function: Callable[..., Any], marker: Path) -> Callable[..., Any]:
    @wraps(function)
    def called(*arguments: Any, **keywords: Any) -> Any:
        if os.path.lexists(marker):  # a method of `Path` may be the one that kills
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **keywords)

    return called


if __name__ == "__main__":
    main()
