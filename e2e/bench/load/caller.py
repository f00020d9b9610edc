"""
A minimal HTTP client for an extender.

A usual HTTP client in Python adds time. This one writes bytes, and reads the length of the answer. It understands only
the answers of the scheduler's server.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_ANSWER_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Caller:
    """One connection. See `connected`."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def post(self, path: str, body: bytes) -> float:
        """Post the JSON *body*, and return the seconds from its first byte to the last byte of the answer."""
        lines = (f"POST {path} HTTP/1.1", "Host: extender", "Content-Type: application/json")
        head = "\r\n".join((*lines, f"Content-Length: {len(body)}", "", ""))
        began = time.perf_counter()
        self.writer.write(head.encode() + body)
        answer = await self.reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer.partition(b"\r\n")[0]:
            raise ConnectionError(f"POST {path}: unexpected answer {answer[:80]!r}")
        _, _, length = answer.lower().partition(b"content-length:")
        await self.reader.readexactly(int(length.split(maxsplit=1)[0]))
        return time.perf_counter() - began


@asynccontextmanager
async def connected(port: int) -> AsyncIterator[Caller]:
    """During a block, connect to *port* of this machine."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=_ANSWER_BYTES)
    try:
        yield Caller(reader, writer)
    finally:
        writer.close()
