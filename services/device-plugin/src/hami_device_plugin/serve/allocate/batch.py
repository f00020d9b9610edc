"""
Run a blocking function in one thread for all callers of the same time.

One thread for each caller costs more than the calls: Python's threads run one at a time, and each waits milliseconds
for its turn after every system call.
Neighbours: `hamicommon.runtime.program.shared_read` says who comes together, `identity` prepares containers so.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from hamicommon.runtime.program.shared_read import SharedRead

A = TypeVar("A")
R = TypeVar("R")


class Batch(Generic[A, R]):
    """One function with one argument."""

    def __init__(self, function: Callable[[A], R]) -> None:
        """Run *function* for one argument after another."""
        self._function = function
        self._waiting: list[A] = []
        self._run = SharedRead(self._run_waiting)

    async def __call__(self, argument: A) -> R:
        """Return what the function returns for *argument*, or raise its error."""
        place = len(self._waiting)
        self._waiting.append(argument)
        result = (await self._run())[place]
        if isinstance(result, Exception):
            raise result
        return result

    async def _run_waiting(self) -> Sequence[R | Exception]:
        arguments, self._waiting = self._waiting, []
        return await asyncio.to_thread(lambda: [self._attempt(argument) for argument in arguments])

    def _attempt(self, argument: A) -> R | Exception:
        try:
            return self._function(argument)
        except Exception as error:
            return error
