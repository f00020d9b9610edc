"""
Turn how a command ends into an exit code.
"""

import os
import sys
from collections.abc import Callable
from typing import Final

from hamicommon.cli.terminal import safe
from hamicommon.errors import HamiError

INTERRUPTED: Final = 130


def exit_code(command: Callable[[], int], name: str, failed: int) -> int:
    """Return what *command* returns; *failed* if it fails, and then one line on stderr, under *name*."""
    try:
        code = command()
        sys.stdout.flush()
    except HamiError as error:
        sys.stderr.write(f"{name}: {safe(str(error))}\n")
        return failed
    except BrokenPipeError:
        # The reader has closed the pipe. The interpreter must not fail to flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return failed
    except KeyboardInterrupt:
        return INTERRUPTED
    return code
