"""
Reads of the kubelet's state that many starts share.
"""

import asyncio
import time

import pytest

from hami_device_plugin.serve.starts.shared_read import SharedRead


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
