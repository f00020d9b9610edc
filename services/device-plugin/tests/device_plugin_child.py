"""
Processes of a test's own, in which one function runs.
"""

import multiprocessing
from collections.abc import Callable
from typing import Any

_SERVED = multiprocessing.get_context("forkserver")
_SERVED.set_forkserver_preload(["hami_device_plugin.serve.session"])


def call_in_child(function: Callable[..., Any], *arguments: Any) -> int | None:
    """
    Call *function*, a module's, in a new process, and return its exit code; that of a signal is negative.

    The process is the fork of one that has the plugin's modules and nothing else. A fork of this process could hang,
    because gRPC's threads hold locks.
    """
    child = _SERVED.Process(target=function, args=arguments)
    child.start()
    child.join()
    return child.exitcode
