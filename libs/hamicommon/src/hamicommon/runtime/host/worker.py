"""
Run blocking calls in one thread, one after another, each with a deadline.

`asyncio.to_thread` is wrong for a library that may hang: each hanging call keeps a thread of the default pool, and a
process that ends waits for its pool. A worker has one daemon thread. While a call hangs, further calls fail at once.
Once the call returns, the worker goes on; its late result is dropped.

A call that waits for a busy processor does not hang. So the deadline counts only time in which the thread ran or slept,
and this process was not stopped.
Source: https://docs.kernel.org/scheduler/sched-stats.html (/proc/<pid>/schedstat), proc(5)
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

import structlog

from hamicommon.errors import HamiError

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""How much of a deadline can pass at once, however late this process looks."""

logger = structlog.get_logger()


class HangError(HamiError):
    """A call has not returned."""

    def __init__(self, message: str, *, is_first: bool) -> None:
        """Say in *is_first* whether this call passed its deadline; if not, an earlier one still hangs."""
        super().__init__(message)
        self.is_first = is_first


@dataclass(frozen=True, slots=True)
class _ThreadTimes:
    """The times of a thread, in seconds since it started."""

    is_runnable: bool
    """Whether it runs, or waits for a processor. That wait is in `queued` only when it ends."""
    ran: float
    queued: float

    def used_seconds(self, before: "_ThreadTimes", step: float) -> float:
        """Return how much of the last *step* seconds the thread ran or slept; *before* are the times at its start."""
        if self.is_runnable:
            return self.ran - before.ran
        return max(step - (self.queued - before.queued), 0.0)


class Worker:
    """One thread for the calls into one library."""

    def __init__(self, name: str) -> None:
        """Prepare; the thread starts with the first call. *name* is the library's."""
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._turn = asyncio.Lock()
        self._thread: Thread | None = None
        self._running = ""
        """The call in progress; empty between calls."""
        self._began = 0.0
        self._is_hanging = False

    def problem(self) -> str | None:
        """Return which call hangs and for how long; None if none does."""
        if not self._is_hanging:
            return None
        return f"{self._name}: {self._running} has not returned for {time.monotonic() - self._began:.0f} s"

    async def call(self, function: Callable[..., T], *arguments: Any, seconds: float) -> T:
        """
        Return what *function* returns for *arguments*.

        The deadline of *seconds* starts when earlier calls have ended. A cancelled call runs on in the thread.

        Raises:
            HangError: it did not return in time, or an earlier call still hangs.
        """
        async with self._turn:
            hanging = self.problem()
            if hanging is not None:
                raise HangError(hanging, is_first=False)
            answer = self._submit(function, arguments)
            if await self._returns(answer, seconds):
                return answer.result()
            self._is_hanging = True
            raise HangError(f"{self._name}: {self._running} did not return within {seconds:g} s", is_first=True)

    async def _returns(self, answer: "asyncio.Future[Any]", seconds: float) -> bool:
        """Wait for *answer*, and return whether it came before the thread had *seconds* for it."""
        left, before = seconds, self._look()
        while left > 0:
            step = min(left, LOOK_SECONDS)
            done, _ = await asyncio.wait((answer,), timeout=step)
            if done:
                return True
            now = self._look()
            left -= step if before is None or now is None else now.used_seconds(before, step)
            before = now
        return False

    def _look(self) -> "_ThreadTimes | None":
        """Return what the thread has done so far; None if that cannot be read."""
        folder = Path(f"/proc/self/task/{self._thread.native_id if self._thread else 0}")
        try:
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            ran, queued, _ = (folder / "schedstat").read_text().split()
        except OSError:
            return None
        return _ThreadTimes(is_runnable=state == "R", ran=int(ran) / 1e9, queued=int(queued) / 1e9)

    def _submit(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> "asyncio.Future[T]":
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        # An answer that nobody waits for any more may be an error.
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._jobs.put(lambda: self._run(function, arguments, answer))
        if self._thread is None:
            self._thread = Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        return answer

    def _run(self, function: Callable[..., T], arguments: tuple[Any, ...], answer: "asyncio.Future[T]") -> None:
        """Call *function* in this thread, and give *answer* to its loop."""
        self._running, self._began = getattr(function, "__name__", "a call").strip("_"), time.monotonic()
        result, error = None, None
        try:
            result = function(*arguments)
        except BaseException as raised:
            error = raised
        loop = answer.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._settle, answer, result, error)

    def _settle(self, answer: "asyncio.Future[Any]", result: Any, error: BaseException | None) -> None:
        if self._is_hanging:
            self._is_hanging = False
            logger.info("A call that hung has returned", library=self._name, error=str(error) if error else None)
        if answer.cancelled():
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def _work(self) -> None:
        while True:
            self._jobs.get()()
