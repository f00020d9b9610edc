"""
POST to an extender, byte for byte like Go's HTTP client.

Owns the bytes of the request, the pool of idle connections (at most two for a host, closed after 90 s) and the timeout
of the exchange. Must never interpret a body. If the server closes a reused connection, the request fails without a
retry.
Source: net/http Transport (DefaultMaxIdleConnsPerHost, isReplayable), k8s.io/kubernetes/pkg/scheduler/extender.go
(makeTransport).
"""

import asyncio
import gzip
import ssl
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

MAX_IDLE_CONNECTIONS = 2
IDLE_SECONDS = 90.0
USER_AGENT = "Go-http-client/1.1"
READ_LIMIT_BYTES = 1 << 20


class PostError(Exception):
    """The exchange failed. The text is Go's."""


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0


class Poster:
    """The connections to one host."""

    def __init__(
        self, url_prefix: str, context: ssl.SSLContext | None, server_name: str, timeout_seconds: float
    ) -> None:
        parts = urlsplit(url_prefix)
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if context else 80)
        self._host_header = parts.netloc
        self._path = parts.path.rstrip("/")
        self._url_prefix = url_prefix
        self._context = context
        self._server_name = server_name or self._host
        self._timeout_seconds = timeout_seconds
        self._idle: list[_Connection] = []

    async def post(self, verb: str, content: bytes) -> tuple[int, bytes]:
        """
        Send *content* to `<prefix>/<verb>`, and return status and body.

        Raises: PostError if there is no complete answer in time.
        """
        url = f"{self._url_prefix}/{verb}"
        connection: _Connection | None = None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                connection = self._take_idle() or await self._connect()
                connection.writer.write(self._head(verb, len(content)) + content)
                await connection.writer.drain()
                status, body, keeps = await _answer(connection.reader)
        except BaseException as error:
            if connection is not None:
                connection.writer.close()
            raise _described(error, url, self._host, self._port) from error
        self._give_back(connection, keeps)
        return status, body

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.writer.close()
        self._idle.clear()

    def _head(self, verb: str, length: int) -> bytes:
        return (
            f"POST {self._path}/{verb} HTTP/1.1\r\nHost: {self._host_header}\r\nUser-Agent: {USER_AGENT}\r\n"
            f"Content-Length: {length}\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
        ).encode()

    def _take_idle(self) -> _Connection | None:
        """Return the most recently used connection that is still open."""
        while self._idle:
            connection = self._idle.pop()
            is_fresh = time.monotonic() - connection.idle_since < IDLE_SECONDS
            if is_fresh and not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.writer.close()
        return None

    async def _connect(self) -> _Connection:
        name = self._server_name if self._context else None
        reader, writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._context, server_hostname=name, limit=READ_LIMIT_BYTES
        )
        return _Connection(reader, writer)

    def _give_back(self, connection: _Connection, keeps: bool) -> None:
        if keeps and len(self._idle) < MAX_IDLE_CONNECTIONS:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.writer.close()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, bytes, bool]:
    """Read one response, and return its status, its body, and whether the connection stays open."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    version, status = head[0].split(" ", 2)[:2]
    headers = {}
    for line in head[1:]:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    keeps = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    elif status in {"204", "304"}:
        body = b""
    else:
        body, keeps = await reader.read(), False
    if headers.get("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return int(status), body, keeps


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readline()).split(b";", 1)[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while (await reader.readline()).strip():
        pass
    return b"".join(parts)


def _described(error: BaseException, url: str, host: str, port: int) -> BaseException:
    """Return *error* with Go's text. Errors that are not of the exchange are returned unchanged."""
    match error:
        case TimeoutError():
            why = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        case ConnectionRefusedError():
            why = f"dial tcp {host}:{port}: connect: connection refused"
        case ConnectionResetError():
            why = "read: connection reset by peer"
        case asyncio.IncompleteReadError():
            why = "unexpected EOF" if error.partial else "EOF"
        case ssl.SSLCertVerificationError():
            why = f"tls: failed to verify certificate: {error.verify_message}"
        case OSError() | ValueError() | asyncio.LimitOverrunError() | EOFError():
            why = str(error)
        case _:
            return error
    return PostError(f'Post "{url}": {why}')
