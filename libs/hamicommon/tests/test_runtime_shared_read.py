"""
Reads that many callers share.
"""

import asyncio
import gc
import time
from typing import Any

import pytest

from hamicommon.runtime.program.shared_read import SharedRead


class Source:
    """A state whose reads take until `gate` is set; each read sees the state at its start."""

    def __init__(self) -> None:
        self.state = self.reads = 0
        self.gate = asyncio.Event()

    async def read(self) -> int:
        self.reads += 1
        seen = self.state
        await self.gate.wait()
        if seen < 0:
            raise ValueError(seen)
        return seen


async def test_many_callers_need_two_reads() -> None:
    """The first has its own, and all that ask meanwhile share the next."""
    source = Source()
    shared = SharedRead(source.read)
    first = asyncio.create_task(shared())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    source.state = 1
    others = [asyncio.create_task(shared()) for _ in range(40)]
    await asyncio.sleep(0)
    source.gate.set()

    assert [0, *[1] * 40] == await asyncio.gather(first, *others)
    assert 2 == source.reads


async def test_caller_never_gets_a_state_older_than_its_question() -> None:
    """A read that has started is not shared."""
    source = Source()
    source.gate.set()
    shared = SharedRead(source.read)
    for state in range(3):
        source.state = state
        assert state == await shared()


async def test_error_reaches_every_caller_and_the_next_read_is_new() -> None:
    """One failed read is no reason for the next to fail."""
    source = Source()
    source.gate.set()
    source.state = -1
    shared = SharedRead(source.read)

    found = await asyncio.gather(shared(), shared(), return_exceptions=True)
    assert [ValueError, ValueError] == [type(error) for error in found]
    source.state = 2
    assert 2 == await shared()


async def test_caller_that_gives_up_leaves_the_read_to_the_others() -> None:
    """The kubelet may cancel one of the calls."""
    source = Source()
    shared = SharedRead(source.read)
    one, other = asyncio.create_task(shared()), asyncio.create_task(shared())
    await asyncio.sleep(0)
    one.cancel()
    source.gate.set()

    assert 0 == await other
    with pytest.raises(asyncio.CancelledError):
        await one


async def test_reads_keep_their_distance() -> None:
    """The kubelet answers so many lists a second; those that ask meanwhile share one."""
    source = Source()
    source.gate.set()
    shared = SharedRead(source.read, pause_seconds=0.2)
    began = time.monotonic()
    await shared()
    source.state = 1

    assert [1, 1, 1] == list(await asyncio.gather(shared(), shared(), shared()))
    assert 2 == source.reads
    assert 0.2 <= time.monotonic() - began


async def test_shared_read_begins_after_each_question() -> None:
    """Questions during a read share the next one. One that is cancelled does not end it for the others."""
    begun: list[int] = []
    go = asyncio.Event()

    async def read() -> int:
        begun.append(len(begun))
        await go.wait()
        return begun[-1]

    shared = SharedRead(read)
    first = asyncio.create_task(shared())
    await asyncio.sleep(0.01)
    later = [asyncio.create_task(shared()) for _ in range(3)]
    await asyncio.sleep(0.01)
    later[0].cancel()
    assert [0] == begun
    go.set()

    assert [0, 1, 1] == [await first, await later[1], await later[2]]
    assert [0, 1] == begun


async def test_error_of_a_read_whose_callers_are_gone_is_no_defect() -> None:
    """It is not logged as one that nobody retrieved: the kubelet may end, and with it every call."""
    source, problems = Source(), list[dict[str, Any]]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    source.state = -1
    caller = asyncio.create_task(SharedRead(source.read)())
    await asyncio.sleep(0.01)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    source.gate.set()
    await asyncio.sleep(0.01)
    gc.collect()

    assert (1, []) == (source.reads, problems)
