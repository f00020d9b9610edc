"""
A blocking function that one thread runs for many callers.
"""

import asyncio
import threading

from hami_device_plugin.serve.allocate.batch import Batch


async def test_each_caller_gets_its_result_or_its_error() -> None:
    """One failure does not reach the other callers."""
    halves: Batch[int, float] = Batch(lambda number: 12 / number)

    found = await asyncio.gather(*(halves(number) for number in (1, 0, 3)), return_exceptions=True)
    assert [12, ZeroDivisionError, 4] == [type(one) if isinstance(one, Exception) else one for one in found]


async def test_callers_of_the_same_time_share_a_thread() -> None:
    """Forty starts need two jobs: one for the first, one for those that came meanwhile."""
    started, release = threading.Event(), threading.Event()
    jobs = []

    def work(number: int) -> int:
        jobs.append(number)
        started.set()
        release.wait()
        return number

    batch = Batch(work)
    first = asyncio.create_task(batch(0))
    await asyncio.to_thread(started.wait)
    others = [asyncio.create_task(batch(number)) for number in range(1, 40)]
    await asyncio.sleep(0)

    assert [0] == jobs
    release.set()
    assert list(range(40)) == await asyncio.gather(first, *others)


async def test_caller_that_gives_up_does_not_shift_the_results() -> None:
    """The kubelet may cancel one of the calls."""
    batch: Batch[int, int] = Batch(lambda number: number)
    one, other = asyncio.create_task(batch(1)), asyncio.create_task(batch(2))
    await asyncio.sleep(0)
    one.cancel()

    assert 2 == await other
