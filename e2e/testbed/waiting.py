"""
Wait for states that no event announces.

Owns the one polling loop of the tests and benchmarks. Time is the event loop's, so that it works in virtual time too.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, TypeVar, overload

SHORTEST_PAUSE_SECONDS = 0.005
LONGEST_PAUSE_SECONDS = 0.25
"""Between two probes."""
_PAUSES = 20
"""A pause is this part of the time waited so far, so long waits cost the probed process little."""

_is_in_probe: ContextVar[bool] = ContextVar("_is_in_probe", default=False)

T = TypeVar("T")


class NotInTimeError(Exception):
    """A condition did not become true in time. The message names the condition and the last answer."""


class NestedWaitError(Exception):
    """A probe waited itself. Its time limit could end the outer wait, whose limit is the one that is meant."""


@overload
async def eventually(probe: Callable[[], Awaitable[T | None]], what: str = "", seconds: float = 20.0) -> T: ...


@overload
async def eventually(probe: Callable[[], T | None], what: str = "", seconds: float = 20.0) -> T: ...


async def eventually(probe: Callable[[], Any], what: str = "", seconds: float = 20.0) -> Any:
    """
    Call *probe*, plain or async, until it returns something true, and return that.

    An error of *probe* counts as "not yet", except NotInTimeError, which ends the wait. *probe* asks once; it may not
    call this function.
    Raises: NotInTimeError with *what* and the last answer; its cause is the last error. NestedWaitError.
    """
    name = what or getattr(probe, "__qualname__", repr(probe))
    if _is_in_probe.get():
        raise NestedWaitError(f"a probe waits for {name}")
    clock = asyncio.get_running_loop().time
    start = clock()
    while True:
        problem: Exception | None = None
        try:
            found = await _ask(probe)
            if found:
                return found
            last = repr(found)
        except (NotInTimeError, NestedWaitError):
            raise
        except Exception as error:  # any: what the probe asks may not be up yet
            problem, last = error, repr(error)
        waited = clock() - start
        if waited >= seconds:
            raise NotInTimeError(f"{name}: not within {seconds:g} s; last answer: {last}") from problem
        await asyncio.sleep(min(max(waited / _PAUSES, SHORTEST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS))


async def _ask(probe: Callable[[], Any]) -> Any:
    """Return what *probe* answers. `eventually` refuses to wait meanwhile."""
    token = _is_in_probe.set(True)
    try:
        answer = probe()
        return await answer if inspect.isawaitable(answer) else answer
    finally:
        _is_in_probe.reset(token)
