"""
The relay copies bytes and ends in both directions, and ends connections that it cannot relay.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from controlplane.machines import relay

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def relayed(handler: Handler | None) -> AsyncIterator[int]:
    """Yield a port whose connections are relayed to *handler*, or to a port without a listener."""
    far = await asyncio.start_server(handler or _hang_up, "127.0.0.1", 0)
    far_port = far.sockets[0].getsockname()[1]
    if handler is None:
        far.close()
        await far.wait_closed()
    listening = socket.create_server(("127.0.0.1", 0))
    task = asyncio.create_task(relay.serve(listening, "127.0.0.1", far_port))
    try:
        yield listening.getsockname()[1]
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        far.close()


async def _hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _echo_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer after the end of the input, so that the end must have been relayed."""
    writer.write(await reader.read(-1))
    writer.close()


@pytest.mark.parametrize("size", [1, 3 * relay.BUFFER_BYTES + 1])
async def test_bytes_and_ends_are_relayed_in_both_directions(size: int) -> None:
    """There may be more bytes than one read returns."""
    content = bytes(index % 251 for index in range(size))
    async with relayed(_echo_all) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(content)
        writer.write_eof()
        answer = await reader.read(-1)
        writer.close()

    assert content == answer


async def test_many_connections_do_not_mix() -> None:
    """Each gets its own answer."""

    async def talk(port: int, word: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(word)
        writer.write_eof()
        answer = await reader.read(-1)
        writer.close()
        return answer

    words = [b"word %d" % index for index in range(50)]
    async with relayed(_echo_all) as port:
        answers = await asyncio.gather(*(talk(port, word) for word in words))

    assert words == answers


async def test_connection_without_a_listener_is_ended() -> None:
    """A client learns at once that the API server is down, and the relay keeps running."""
    async with relayed(None) as port:
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.suppress(ConnectionResetError):
                assert b"" == await asyncio.wait_for(reader.read(1), 5)
            writer.close()
