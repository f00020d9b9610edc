"""
One thread for a library that may hang.
"""

import asyncio
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from threading import Event

import pytest

from hamicommon.runtime.host.worker import HangError, Worker


class Library:
    """A library whose calls answer only while it is not held."""

    def __init__(self) -> None:
        self.free = Event()
        self.free.set()
        self.answers: list[int] = []

    def ask(self, number: int) -> int:
        """Return *number* once the library is free."""
        self.free.wait(20)
        self.answers.append(number)
        return number


def threads(name: str) -> int:
    """Return how many threads of that name live."""
    return sum(thread.name == name for thread in threading.enumerate())


async def test_calls_run_in_one_thread_in_their_order() -> None:
    """Callers at the same time wait for each other."""
    library, worker = Library(), Worker("order")

    assert [0, 1, 2, 3] == await asyncio.gather(*(worker.call(library.ask, n, seconds=5) for n in range(4)))
    assert ([0, 1, 2, 3], 1) == (library.answers, threads("order"))


async def test_error_is_the_callers() -> None:
    """The next call is not affected."""
    worker = Worker("error")

    with pytest.raises(ZeroDivisionError):
        await worker.call(lambda: 1 // 0, seconds=5)
    assert 5 == await worker.call(lambda: 5, seconds=5)


async def test_hanging_call_costs_one_thread_and_later_calls_fail_at_once() -> None:
    """Forty calls during a hang start no thread and do not wait for their deadlines."""
    library, worker = Library(), Worker("hang")
    library.free.clear()

    with pytest.raises(HangError, match=r"hang: ask did not return within 0\.02 s") as first:
        await worker.call(library.ask, 1, seconds=0.02)
    assert first.value.is_first
    async with asyncio.timeout(5):
        for _ in range(40):
            with pytest.raises(HangError, match=r"hang: ask has not returned for") as later:
                await worker.call(library.ask, 2, seconds=60)
            assert not later.value.is_first
    assert 1 == threads("hang")

    library.free.set()


async def test_worker_goes_on_when_the_call_returns() -> None:
    """The late result is dropped, and calls made meanwhile never run."""
    library, worker = Library(), Worker("return")
    library.free.clear()
    with pytest.raises(HangError):
        await worker.call(library.ask, 1, seconds=0.02)
    with pytest.raises(HangError):
        await worker.call(library.ask, 2, seconds=0.02)
    library.free.set()
    async with asyncio.timeout(5):
        while worker.problem() is not None:  # noqa: ASYNC110 - the worker says no more
            await asyncio.sleep(0.01)

    assert 3 == await worker.call(library.ask, 3, seconds=5)
    assert [1, 3] == library.answers


async def test_caller_that_waits_during_a_hang_fails_with_it() -> None:
    """It does not wait for its own deadline on top."""
    library, worker = Library(), Worker("queue")
    library.free.clear()
    answers = await asyncio.gather(
        worker.call(library.ask, 1, seconds=0.05), worker.call(library.ask, 2, seconds=60), return_exceptions=True
    )

    assert [True, True] == [isinstance(answer, HangError) for answer in answers]
    library.free.set()


async def test_cancelled_caller_leaves_the_worker_usable() -> None:
    """A service that ends during a call causes no error."""
    library, worker = Library(), Worker("cancel")
    library.free.clear()
    caller = asyncio.create_task(worker.call(library.ask, 1, seconds=60))
    await asyncio.sleep(0.01)
    caller.cancel()
    library.free.set()

    assert 2 == await worker.call(library.ask, 2, seconds=5)


@pytest.fixture
def busy_processor() -> Iterator[int]:
    """Return the number of a processor that another process keeps busy."""
    processor = max(os.sched_getaffinity(0))
    spin = f"import os\nos.sched_setaffinity(0, {{{processor}}})\nprint(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield processor
        process.kill()


async def test_call_that_waits_for_a_busy_processor_does_not_hang(busy_processor: int) -> None:
    """On a Node whose processors are busy a device would be silent by mistake."""

    def waited_seconds() -> float:
        return time.monotonic() - time.thread_time()

    def work() -> bool:
        os.sched_setaffinity(0, {busy_processor})
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        end = waited_seconds() + 0.3
        while waited_seconds() < end:
            hashlib.sha256(b"0" * 200_000)  # without Python's lock, which the thread must not hold while it waits
        return True

    assert await Worker("busy").call(work, seconds=0.2)
