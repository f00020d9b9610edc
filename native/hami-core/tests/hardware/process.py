"""
A process on a node that calls NVML and CUDA for a test.
"""

import json
import select
from collections.abc import Callable
from typing import Any

from containers import HERE, Container

PROGRAM = """
import json
import pynvml as n
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

    `n` is pynvml, `gpu(index)` a handle, `Cuda()` the CUDA driver, and mig_session.py, limits_session.py and
    mps_session.py have words for MIG, for limits and for MPS. An NVML error is `{"error": number}`.
    """

    def __init__(self, container: Container, **environment: str) -> None:
        path = f"{HERE}:{HERE / 'preload'}:{HERE / 'hardware'}"
        self.process = container.start(PROGRAM, preload=False, PYTHONPATH=path, **environment)

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
