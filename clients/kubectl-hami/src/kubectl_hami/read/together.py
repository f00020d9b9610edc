"""
Ask many things side by side, within one time for all.
"""

import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Semaphore, Thread
from typing import Final, TypeVar

from kubectl_hami.read.source import ReadError

T = TypeVar("T")

THREADS: Final = 64
"""Requests at a time: what hangs takes the place of one that answers."""


def together(calls: Mapping[str, Callable[[], T]], seconds: float | None) -> dict[str, T | ReadError]:
    """
    Return the result of each of *calls*, or why there is none, after *seconds* at the latest.

    Each call has a name for the sentence. One that hangs is left behind, and ends with the program.
    """
    found: dict[str, T | ReadError] = {}
    waiting, ended = deque(calls.items()), Semaphore(0)

    def work() -> None:
        while True:
            try:
                name, call = waiting.popleft()
            except IndexError:
                return
            try:
                found[name] = call()
            except ReadError as error:
                found[name] = error
            finally:
                ended.release()

    for _ in range(min(THREADS, len(calls))):
        Thread(target=work, daemon=True).start()
    until = None if seconds is None else time.monotonic() + seconds
    for _ in calls:
        if not ended.acquire(timeout=None if until is None else max(0.0, until - time.monotonic())):
            waiting.clear()
            break
    late = f"no answer within {seconds:g} s" if seconds is not None else "it failed"
    answered = dict(found)
    return {name: answered.get(name, ReadError(name, late)) for name in calls}
