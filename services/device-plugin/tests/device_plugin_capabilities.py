"""
A process with no more capabilities than the chart gives the plugin.
"""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from device_plugin_child import call_in_child

CAP_DAC_OVERRIDE, CAP_FOWNER = 1, 3
CAPABILITY_VERSION_3 = 0x20080522


def call_with_capabilities(has_fowner: bool, function: Callable[..., Any], *arguments: Any) -> None:
    """Call *function*, a module's, in a process with DAC_OVERRIDE, and with FOWNER if *has_fowner*."""
    assert 0 == call_in_child(_call, has_fowner, function, arguments)


def _call(has_fowner: bool, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    kept = 1 << CAP_DAC_OVERRIDE | (1 << CAP_FOWNER if has_fowner else 0)
    header = struct.pack("<II", CAPABILITY_VERSION_3, 0)
    sets = struct.pack("<6I", kept, kept, kept, 0, 0, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")
    function(*arguments)
