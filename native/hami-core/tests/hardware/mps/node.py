"""
A node with NVIDIA's MPS, protocol 3, and what the tests of this folder say about it. Results of CUDA are numbers.

Each row of the table in fake_driver/README.md has its test here, in the file of its section.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from containers import HERE
from hardware.process import Process, Start

from testbed.driver.mps import MpsCommandError, MpsControl

SUCCESS, UNAVAILABLE, NO_DEVICE, ILLEGAL_ADDRESS, NOT_PERMITTED = 0, 46, 100, 700, 800
RPC_FAILURE, SERVER_NOT_READY, MAX_CONNECTIONS, TERMINATED = 806, 807, 809, 810
TENANT = 60000
"""A user without rights."""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act for another user")


class Node:
    """A node with MPS: its daemon, and processes on it."""

    def __init__(self, control: MpsControl, start: Start) -> None:
        self.control, self._start = control, start

    def process(self, *folders: str, init: bool = False, **variables: str) -> Process:
        """Return a process whose folder of pipes is the daemon's, or one below it. Its contexts take nothing."""
        pipe = str(self.control.pipe.joinpath(*folders))
        return self._start(init=init, **({"CUDA_MPS_PIPE_DIRECTORY": pipe} | variables))

    def client(self, *folders: str, **variables: str) -> Process:
        """Return a process that has become a client, with a context on GPU A."""
        process = self.process(*folders, init=False, **variables)
        assert [SUCCESS, SUCCESS] == process.ask("join()")
        return process


def refusal(control: MpsControl, *words: str) -> str:
    """Return why a command fails."""
    with pytest.raises(MpsCommandError) as caught:
        control.ask(*words)
    return str(caught.value)


def until(is_so: Callable[[], Any]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "not within a minute"
        time.sleep(0.05)


def commands_of(control: MpsControl, uid: int, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command as another user."""
    program = "import os, sys\nsys.argv[:1] = []\nfrom fake_driver.mps.__main__ import main\nos.setuid({})\nmain()"
    return subprocess.run(
        [sys.executable, "-c", program.format(uid), str(control.program), *words],
        env=control.variables | {"PYTHONPATH": str(HERE)},
        capture_output=True,
        text=True,
        check=False,
    )
