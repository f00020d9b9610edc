"""
Processes in virtual time: minutes pass in milliseconds, and any process can be stopped or killed between two steps.

Owns an event loop whose clock stands still while there is work and jumps to the next timer when there is none. What a
`VirtualProcess` runs can be stopped as by SIGSTOP: its callbacks wait until it goes on. Must never wait for real time:
code that uses threads or sockets does not run here.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from heapq import heappop
from selectors import SelectorKey, SelectSelector
from typing import Any, TypeVar, TypeVarTuple
from unittest.mock import patch

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


def run_virtually(story: Coroutine[Any, Any, T]) -> T:
    """
    Run *story* to its end in virtual time, which is also what `time.monotonic` tells, and return its result.

    What still runs then is cancelled, in killed processes too.
    """
    loop = VirtualLoop()
    with patch("time.monotonic", loop.time):
        try:
            return loop.run_until_complete(story)
        finally:
            loop.is_over = True
            while tasks := asyncio.all_tasks(loop):
                for task in tasks:
                    task.cancel()
                for process in loop.stopped:
                    process.release(loop)
                loop.run_until_complete(asyncio.wait(tasks))
            loop.close()


class VirtualProcess:
    """What runs under one name. It begins running."""

    def __init__(self, name: str) -> None:
        """Have nothing to do."""
        self.name = name
        self.is_stopped = False
        self.is_killed = False
        self._waiting: deque[_Step] = deque()
        """What was to be done while it was stopped."""

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Run *work*, and all that it starts, in this process."""
        context = copy_context()
        context.run(_process.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def stop(self) -> None:
        """Do nothing any more, as after SIGSTOP."""
        self.is_stopped = True

    def kill(self) -> None:
        """Do nothing any more for ever, as after SIGKILL: nothing is cancelled, and no `finally` runs."""
        self.is_stopped = self.is_killed = True

    def go_on(self) -> None:
        """Go on, as after SIGCONT: first what was to be done meanwhile, in its order. A killed process does not."""
        if not self.is_killed:
            self.is_stopped = False
            self.release(asyncio.get_running_loop())

    def defer(self, step: "_Step") -> None:
        """Keep *step* until the process goes on."""
        self._waiting.append(step)

    def release(self, loop: asyncio.AbstractEventLoop) -> None:
        """Let *loop* do what was deferred."""
        waiting, self._waiting = self._waiting, deque()
        for step in waiting:
            loop.call_soon(step, context=step.context)


_process: ContextVar[VirtualProcess | None] = ContextVar("_process", default=None)


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands still while there is work, and jumps when there is none."""

    def __init__(self) -> None:
        """Begin at 0."""
        self.now = 0.0
        self.is_over = False
        """Whether stopped processes work off what they had to do."""
        self.stopped: set[VirtualProcess] = set()
        """The processes that have deferred something."""
        super().__init__(_NoSockets())

    def time(self) -> float:
        """Return the virtual seconds."""
        return self.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As asyncio does, once the process that calls is not stopped."""
        step = self._step(callback, args, context)
        if step is None:
            return super().call_soon(callback, *args, context=context)
        step.handle = super().call_soon(step, context=step.context)
        return step.handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As asyncio does, once the process that calls is not stopped."""
        step = self._step(callback, args, context)
        if step is None:
            return super().call_at(when, callback, *args, context=context)
        step.handle = handle = super().call_at(when, step, context=step.context)
        return handle

    def _step(self, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None) -> "_Step | None":
        """Return *callback* as a step of the process of *context*, the present one if None; None outside of any."""
        process = _process.get() if context is None else context.get(_process)
        if process is None:
            return None
        return _Step(self, process, callback, args, copy_context() if context is None else context)

    def _run_once(self) -> None:
        loop: Any = self
        while loop._scheduled and loop._scheduled[0].cancelled():
            loop._timer_cancelled_count -= 1
            heappop(loop._scheduled)._scheduled = False
        if not loop._ready and loop._scheduled:
            self.now = max(self.now, loop._scheduled[0].when())
        loop_once: Callable[[], None] = super()._run_once  # type: ignore[misc]
        loop_once()


class _NoSockets(SelectSelector):
    """What a loop without sockets asks for news: it has none, and no system call finds that out."""

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """
        Return nothing.

        Raises: RuntimeError: nothing is to be done, now or later.
        """
        if timeout is None:
            raise RuntimeError("all processes wait for each other: nothing is to be done, now or later")
        return []


class _Step:
    """A callback of a process."""

    __slots__ = ("args", "callback", "context", "handle", "loop", "process")

    def __init__(
        self,
        loop: VirtualLoop,
        process: VirtualProcess,
        callback: Callable[..., object],
        args: tuple[Any, ...],
        context: Context,
    ) -> None:
        self.loop = loop
        self.process = process
        self.callback = callback
        self.args = args
        self.context = context
        self.handle: asyncio.Handle | None = None
        """What its caller may cancel, also after it was deferred."""

    def __call__(self) -> None:
        if self.process.is_stopped and not self.loop.is_over:
            self.process.defer(self)
            self.loop.stopped.add(self.process)
        elif self.handle is None or not self.handle.cancelled():
            self.callback(*self.args)
