"""
Call an extender with as little between it and the clock as there can be.

An HTTP client in Python adds time of its own; this one writes bytes and looks for the length of the answer. It
understands what the scheduler's server says, no more.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_ANSWER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """One connection; see `connected`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def post(self, path: str, body: bytes) -> float:
        """Post *body*, JSON, and return the seconds from its first byte to the last one of the answer."""
        lines = (f"POST {path} HTTP/1.1", "Host: extender", "Content-Type: application/json")
        head = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", ""))
        began = time.perf_counter()
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise ConnectionError(f"POST {path} is answered with {answer[:80]!r}")
        _, _, length = answer.lower().partition(b"content-length:")
        await self.reader.readexactly(int(length.split(maxsplit=1)[0]))
        return time.perf_counter() - began


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Caller]:
    """Connect to *port* of this machine for the length of a block."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_ANSWER_BYTES)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
