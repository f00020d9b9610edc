"""
A process on a node that calls NVML and CUDA for a test.
"""

import json
import select
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Self

from containers import HERE, Container

PATHS = f"{HERE}:{HERE / 'preload'}:{HERE / 'hardware'}"
"""The `PYTHONPATH` of PROGRAM."""
PROGRAM = """
import json
import sys
import pynvml as n
from driver_session import *
from mig_session import *
from limits_session import *
from mps_session import *
gpu = n.nvmlDeviceGetHandleByIndex
for line in sys.stdin:
    try:
        value = eval(line)
    except n.NVMLError as error:
        value = {"error": error.value}
    print(json.dumps(value, default=repr), flush=True)
"""


class Process:
    """
    Evaluates expressions until it is killed.

    `n` is pynvml, `gpu(index)` a handle, `Cuda()` the CUDA driver, and the files `*_session.py` have words for MIG, for
    limits, for MPS, and for what a real driver is asked. An NVML error is `{"error": number}`.
    """

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        """Talk to *process*, which runs PROGRAM."""
        self.process = process

    @classmethod
    def of(cls, container: Container, **environment: str) -> Self:
        """Start one on the node of *container*, without the library."""
        return cls(container.start(PROGRAM, preload=False, PYTHONPATH=PATHS, **environment))

    @classmethod
    def with_environment(cls, environment: dict[str, str], prefix: tuple[str, ...] = ()) -> Self:
        """Start one with exactly this environment, by the command *prefix*."""
        pipe = subprocess.PIPE
        command = [*prefix, sys.executable, "-c", PROGRAM]
        variables = environment | {"PYTHONPATH": PATHS}
        return cls(subprocess.Popen(command, env=variables, stdin=pipe, stdout=pipe, stderr=pipe, text=True))

    def send(self, expression: str) -> None:
        """Let the process evaluate an expression."""
        assert self.process.stdin is not None
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        """Wait for the value of the expression that was sent."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        return json.loads(line)

    def has_answered(self, seconds: float) -> bool:
        """Return whether the answer is there within *seconds*."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], seconds)[0])

    def ask(self, expression: str) -> Any:
        """Return the value of an expression."""
        self.send(expression)
        return self.answer()

    def ask_all(self, *expressions: str) -> list[Any]:
        """Return the values of expressions."""
        return [self.ask(expression) for expression in expressions]

    def keep(self, name: str, expression: str) -> None:
        """Keep the value of an expression under a name."""
        assert self.ask(f"globals().update({name}={expression})") is None

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.communicate()


Start = Callable[..., Process]


def error(number: int) -> dict[str, int]:
    """Return the answer of a call that fails with that NVML error."""
    return {"error": number}
