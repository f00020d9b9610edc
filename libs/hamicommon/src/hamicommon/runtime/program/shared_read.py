"""
Read something once for all callers of the same time.

Owns when a read may be shared: only if it starts after the caller asked. So no caller gets an older state than it would
get alone, and a caller that is cancelled does not end the read of the others.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedRead(Generic[T]):
    """One function without arguments, run for one caller or for many."""

    def __init__(self, read: Callable[[], Awaitable[T]], pause_seconds: float = 0.0) -> None:
        """Share the results of *read*. One runs at a time, and starts *pause_seconds* after the last one or later."""
        self._read = read
        self._pause_seconds = pause_seconds
        self._next_at = 0.0
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[T] | None = None
        """The read that has not started yet."""

    async def __call__(self) -> T:
        """Return the result of a read that starts now or later, or raise its error."""
        if self._next is None:
            self._next = asyncio.create_task(self._run())
            self._next.add_done_callback(_take_error)
        return await asyncio.shield(self._next)

    async def _run(self) -> T:
        async with self._one_at_a_time:
            pause = self._next_at - time.monotonic()
            if pause > 0:
                await asyncio.sleep(pause)
            self._next, self._next_at = None, time.monotonic() + self._pause_seconds
            return await self._read()


def _take_error(read: asyncio.Task[T]) -> None:
    """Take the error of a read whose callers were all cancelled; asyncio would log it as never retrieved."""
    if not read.cancelled():
        read.exception()
