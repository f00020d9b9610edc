"""
Virtual time passes without waiting, and a stopped or killed process does nothing.
"""

import asyncio
import time
from contextlib import suppress

import pytest

from testbed.virtual.loop import VirtualProcess, run_virtually


async def counting(seen: list[float]) -> None:
    """Note the time every second."""
    while True:
        seen.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1.0)


def test_hour_passes_at_once_and_the_steady_clock_tells_it() -> None:
    """Timers that were cancelled are not waited for either."""

    async def story() -> float:
        """Sleep for an hour, beside a wait that ends early."""
        began = time.monotonic()
        with suppress(TimeoutError):
            async with asyncio.timeout(1800.0):
                await asyncio.sleep(10.0)
        await asyncio.sleep(3590.0)
        return time.monotonic() - began

    began = time.perf_counter()
    assert 3600.0 == run_virtually(story())
    assert time.perf_counter() - began < 60.0


def test_stopped_process_goes_on_where_it_was() -> None:
    """What was due meanwhile is done first, once, and late."""

    async def story() -> list[float]:
        """Stop it from 2.5 to 10.5."""
        seen: list[float] = []
        process = VirtualProcess("p")
        process.start(counting(seen))
        await asyncio.sleep(2.5)
        process.stop()
        await asyncio.sleep(8.0)
        process.go_on()
        await asyncio.sleep(1.5)
        return seen

    assert [0.0, 1.0, 2.0, 10.5, 11.5] == run_virtually(story())


def test_killed_process_runs_nothing_more() -> None:
    """Neither its cleanup nor what it had started, and no SIGCONT brings it back."""

    async def story() -> tuple[list[float], list[str]]:
        """Kill it at 2.5."""
        seen: list[float] = []
        said: list[str] = []

        async def work() -> None:
            try:
                await asyncio.gather(counting(seen), counting(seen))
            finally:
                said.append("cleaned up")

        process = VirtualProcess("p")
        process.start(work())
        await asyncio.sleep(2.5)
        process.kill()
        process.go_on()
        await asyncio.sleep(100.0)
        return [*seen], [*said]

    assert ([0.0, 0.0, 1.0, 1.0, 2.0, 2.0], []) == run_virtually(story())


def test_wait_that_is_cancelled_while_its_process_is_stopped_does_not_fire() -> None:
    """A time limit that passed during the stop, of something that was done in time."""

    async def story() -> str:
        """The answer comes before the time limit, and the process hears of both later."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def ask() -> str:
            async with asyncio.timeout(5.0):
                return await answer

        process = VirtualProcess("p")
        asking = process.start(ask())
        await asyncio.sleep(1.0)
        process.stop()
        await asyncio.sleep(1.0)
        answer.set_result("in time")
        await asyncio.sleep(10.0)
        process.go_on()
        return await asking

    assert "in time" == run_virtually(story())


def test_processes_that_wait_for_each_other_are_an_error() -> None:
    """Instead of an end that never comes."""

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="nothing is to be done"):
        run_virtually(wait())
