"""
What a client reports: its steps, each with what it saw.

The test compares the steps of two runs. Those of `limited` may differ: there a limit shows.
"""

import ctypes
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

MIB = 1 << 20
LARGE_MIB = 2000
"""Above the limit, and below what the device has."""


def say(step: str, value: Any) -> None:
    """Report a step that is the same with and without a limit."""
    _write({"step": step, "value": value, "is_limited": False})


def limited(step: str, value: Any) -> None:
    """Report a step in which a limit shows."""
    _write({"step": step, "value": value, "is_limited": True})


def attempt(function: Callable[[], Any]) -> Any:
    """Return what the function returns, or the text of its error."""
    try:
        return function()
    except Exception as error:
        return str(error)


def end() -> None:
    """Report how often each function of the driver was called. CLIENT_NAMES lists them, as `names_cuda.def` does."""
    driver = ctypes.CDLL(os.environ["CLIENT_LIBRARY"])
    driver.fake_calls.restype = ctypes.c_uint64
    known = re.findall(r"^NAME\((\w+),", Path(os.environ["CLIENT_NAMES"]).read_text(encoding="utf-8"), re.MULTILINE)
    counted = {name: driver.fake_calls(name.encode()) for name in known}
    _write({"calls": {name: count for name, count in counted.items() if count}})


def _write(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
