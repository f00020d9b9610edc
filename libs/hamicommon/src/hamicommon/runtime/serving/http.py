"""
The HTTP server of a service: health, metrics, version. The only module with aiohttp.

If a handler fails, the server logs it and answers 500 with one line of text. A bad request is answered with 400 and one
debug line, so that no client can fill the log. Whatever the server waits for has a deadline; a connection that misses
it is closed, and a request whose head has arrived is answered first.
Neighbours: `connections` bounds what peers take, `tls` has the certificate, `exposition` writes the metrics.
"""

import asyncio
import gzip
import io
import logging
import math
import os
import platform
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar, cast
from weakref import WeakKeyDictionary

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from aiohttp.web import BaseRequest
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import gzip_accepted
from prometheus_client.metrics_core import Metric

from hamicommon.errors import HamiError
from hamicommon.runtime import MAX_CONNECTIONS
from hamicommon.runtime.serving.access import Access, Verdict
from hamicommon.runtime.serving.connections import HELD_BYTES, Connections, accept, cancelled, listening_sockets
from hamicommon.runtime.serving.exposition import encoder
from hamicommon.runtime.serving.samples import PAUSE
from hamicommon.runtime.serving.tls import Certificate, FileCertificate

KEEP_ALIVE_SECONDS = 120.0
"""Longest wait for the next request. Go's clients close an idle connection after 90 s, so they never meet this end."""
HEAD_SECONDS = 10.0
"""Longest wait for the handshake of TLS and the head of a request, together."""
BODY_SECONDS = 20.0
"""Longest wait for a request's body."""
ANSWER_SECONDS = 30.0
"""Longest wait until a peer has taken an answer."""
SCRAPE_SECONDS = 1.0
"""How long the answer to a scrape serves others."""
STEP_SECONDS = 0.0005
"""Longest work on a scrape before others go first."""
LINGER_SECONDS = 1.0
"""How long the rest of a refused body is read and dropped, so that the peer sees the answer."""
DRAIN_SECONDS = 10.0
"""Longest wait for running requests when the server closes."""

T = TypeVar("T")
Probe = Callable[[], str | None]
"""Returns None if the service is well, else the reason."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

logger = structlog.get_logger()


class ServeError(HamiError):
    """The server cannot start, because the address cannot be used."""


def application(
    name: str,
    version: str,
    *,
    live: Probe | None = None,
    ready: Probe | None = None,
    status: Callable[[], str] | None = None,
    registry: CollectorRegistry,
    access: Access | None = None,
    max_body_bytes: int = 16 * 1024 * 1024,
) -> web.Application:
    """
    Return an application with GET /livez, /healthz (the same), /readyz, /metrics and /version; add routes to it.

    If a probe returns a reason, the answer is 503 with the reason as text. If the service is ready, *status* returns
    what else /readyz says. With *access*, /metrics asks for a bearer token. It has *registry*, and `process_…` for this
    process. Metrics do not say when they were created: nobody reads that, and it doubles the series of every counter.
    """
    app = web.Application(middlewares=[_plain_text_errors], client_max_size=max_body_bytes)
    app.router.add_get("/livez", _probe(live))
    app.router.add_get("/healthz", _probe(live))
    app.router.add_get("/readyz", _probe(ready, status))
    app.router.add_get("/metrics", _metrics(_scrapes_of(registry), access))
    app.router.add_get("/version", _version(name, version))
    return app


async def read_body(request: web.Request) -> bytes:
    """
    Return the whole body, limited in size by the application and in time by BODY_SECONDS.

    It is never decompressed, so that its size is what was sent.

    Raises:
        web.HTTPBadRequest: it does not match its headers, or the client closed the connection (400).
        web.HTTPRequestEntityTooLarge: it is larger than the application allows (413).
        web.HTTPUnsupportedMediaType: it is compressed (415).
        web.HTTPRequestTimeout: it did not arrive in time (408).
        web.HTTPServiceUnavailable: the bodies that are on their way are too large together (503).
    """
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding != "identity":
        raise web.HTTPUnsupportedMediaType(text=f"Content-Encoding: must be identity, not {encoding[:40]}\n")
    if request.content.is_eof():
        return await request.read()
    connection = _connection(request)
    try:
        async with asyncio.timeout(None) as deadline:
            connection.await_body(deadline)
            return await request.read()
    except TimeoutError:
        refusal = connection.late_body()
    except web.HTTPRequestEntityTooLarge:
        refusal = web.HTTPRequestEntityTooLarge(request.client_max_size, request.client_max_size + 1)
    except (web.RequestPayloadError, ConnectionError) as error:
        reason = _reason(error.__cause__ or error)
        logger.debug("Body not readable", peer=request.remote, path=request.path, reason=reason)
        refusal = web.HTTPBadRequest(text=f"the body cannot be read: {reason}\n")
    finally:
        connection.work()
    # Raised here: an answer that has one of these errors as its context would keep what was read while it is sent.
    raise refusal


class _Connection(web.RequestHandler):
    """A connection, from before its handshake to its end. It knows what it waits for, since when and how long."""

    def __init__(self, server: web.Server, connections: Connections, peer: str) -> None:
        """Wait for the first request of *peer*."""
        loop = asyncio.get_running_loop()
        super().__init__(
            server,
            loop=loop,
            logger=_server_logger,
            access_log=None,  # type: ignore[arg-type]  # The application's own runner passes None, too.
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            lingering_time=LINGER_SECONDS,
            auto_decompress=False,
        )
        self.peer = peer
        self.has_asked = False
        self.held_bytes = 0
        self._connections = connections
        self._whole_transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._body: asyncio.Timeout | None = None
        self._is_refused = False
        self._is_idle = False
        self._deadline: asyncio.TimerHandle | None = None
        self._wait(HEAD_SECONDS)
        connections.add(self)

    def open(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        """Start to serve *accepted*, with TLS if there is a *context*."""
        self._opening = self._loop.create_task(self._open(accepted, context))

    async def _open(self, accepted: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: self, accepted, ssl=context)
        except OSError as error:
            logger.debug("Connection failed", peer=self.peer, reason=str(error))
        finally:
            self._opening = None
            if self._whole_transport is None:
                self._end()

    @property
    def is_open(self) -> bool:
        """Whether its handshake is done."""
        return self._whole_transport is not None

    # What it waits for

    def work(self) -> None:
        """Wait for nothing of the peer: its request is being answered."""
        self._wait(None)

    def stand_by(self) -> None:
        """Let its request wait until others have been answered: it may be closed for one that need not wait."""
        self._wait(None)
        self.is_waited_for = True
        self._connections.wake()

    def await_body(self, deadline: asyncio.Timeout) -> None:
        """Wait for the rest of a body, until *deadline*, which this sets."""
        self.stand_by()
        self._body = deadline
        deadline.reschedule(self._loop.time() + BODY_SECONDS)

    def late_body(self) -> web.HTTPException:
        """Return the answer to a request whose body did not arrive in time."""
        answer: web.HTTPException
        if self._is_refused:
            answer = web.HTTPServiceUnavailable(text="too many bytes of other requests are on their way\n")
        else:
            answer = web.HTTPRequestTimeout(text=f"the body did not arrive within {BODY_SECONDS:.0f} s\n")
        answer.force_close()
        return answer

    def refuse(self) -> None:
        """Free its memory. A request whose body is still arriving is answered, all others are cut."""
        if self._body is None:
            self.cut()
        elif not self._body.expired():
            self._is_refused = True
            self._body.reschedule(self._loop.time())

    def cut(self) -> None:
        """Close it without waiting for the peer."""
        if self._whole_transport is not None:
            self.force_close()
            self._whole_transport.abort()
        elif self._opening is not None:
            self._opening.cancel()

    def _wait(self, seconds: float | None) -> None:
        """Wait for the peer for *seconds*, None: not for the peer."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self._loop.call_later(seconds, self.cut)
        self.is_waited_for, self._body, self._is_idle = seconds is not None, None, False
        # Not the loop's clock: uvloop's shows milliseconds, and the order counts.
        self.since = time.monotonic()
        if self.is_waited_for:
            self._connections.wake()

    def _rest(self) -> None:
        """Wait for the next request. aiohttp ends that after KEEP_ALIVE_SECONDS, but only if the peer takes all."""
        transport = self._whole_transport
        is_taken = transport is None or not transport.get_write_buffer_size()
        self._wait(KEEP_ALIVE_SECONDS + LINGER_SECONDS if is_taken else ANSWER_SECONDS)
        self.has_asked = self._is_idle = True
        self._connections.free(self)

    def _end(self) -> None:
        self._wait(None)
        self._connections.remove(self)

    # What aiohttp calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # aiohttp forgets its transport while the last bytes are on their way; this one can be cut off until the end.
        self._whole_transport = cast(asyncio.Transport, transport)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take some bytes of a head or a body."""
        if self._is_idle:
            self._wait(HEAD_SECONDS)
        self._connections.hold(self, len(data))
        # Nothing happens if that has cut it.
        super().data_received(data)

    async def finish_response(
        self, request: BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer."""
        self._wait(ANSWER_SECONDS)
        body = getattr(resp, "body", None)
        self._connections.hold(
            self, len(body) if isinstance(body, bytes | bytearray) else getattr(body, "size", 0) or 0
        )
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._rest()

    def connection_lost(self, exc: BaseException | None) -> None:
        """End."""
        self._end()
        super().connection_lost(exc)


def _connection(request: web.BaseRequest) -> _Connection:
    return cast(_Connection, request.protocol)


class Server:
    """A listening server."""

    def __init__(
        self, runner: web.AppRunner, listeners: list[socket.socket], tls: Certificate | None, connections: Connections
    ) -> None:
        """Take over *runner*, which is set up, and *listeners*, and begin to accept."""
        self.port: int = listeners[0].getsockname()[1]
        self.connections = connections
        self._runner = runner
        self._listeners = listeners
        self._context = tls.context if tls else None
        self._tasks = [asyncio.create_task(accept(one, connections, self._open)) for one in listeners]
        if isinstance(tls, FileCertificate):
            self._tasks.append(asyncio.create_task(tls.follow()))

    def _open(self, accepted: socket.socket, peer: str) -> None:
        assert self._runner.server is not None
        _Connection(self._runner.server, self.connections, peer).open(accepted, self._context)

    async def close(self) -> None:
        """Stop listening, wait for running requests, and close the connections."""
        for task in self._tasks:
            await cancelled(task)
        self.connections.cut_unopened()
        for listener in self._listeners:
            listener.close()
        await self._runner.cleanup()


async def serve(
    app: web.Application,
    address: str,
    tls: Certificate | None = None,
    *,
    flag: str = "address",
    max_connections: int = MAX_CONNECTIONS,
    held_bytes: int = HELD_BYTES,
) -> Server:
    """
    Listen at *address* and return the server.

    *address* is `host:port`, `:port` for every interface, or `[::1]:port`; port 0 selects a free port. Errors name
    *flag*. Without *tls* the server speaks plain HTTP. A certificate in files is reloaded when they change. Peers have
    *max_connections* open, which make it hold *held_bytes*.

    Raises:
        ServeError: the address is malformed or already in use.
    """
    try:
        host, port = split_address(address)
    except ServeError as error:
        raise ServeError(f"{flag} {error}") from error
    runner = web.AppRunner(app, shutdown_timeout=DRAIN_SECONDS, handle_signals=False)
    await runner.setup()
    try:
        listeners = await listening_sockets(host, port)
    except OSError as error:
        await runner.cleanup()
        # Python adds the address to the reason.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise ServeError(f"{flag} {address}: cannot listen there: {reason}") from error
    return Server(runner, listeners, tls, Connections(max_connections, held_bytes))


def split_address(address: str) -> tuple[str | None, int]:
    """
    Return the host (None: every interface) and port of a Go listen address.

    >>> split_address(":9395"), split_address("127.0.0.1:8080"), split_address("[::1]:0")
    ((None, 9395), ('127.0.0.1', 8080), ('::1', 0))
    """
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ServeError(f"{address!r} is not host:port with a port of 0 to 65535")
    return host or None, int(port)


def _reason(error: BaseException) -> str:
    """Return the message of aiohttp's parser in one line."""
    return " ".join(str(getattr(error, "message", error)).split())


def _is_no_peers_fault(record: logging.LogRecord) -> bool:
    """Return whether to log *record* of aiohttp, which logs a client's errors with a traceback."""
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        logger.debug("Request not readable", reason=_reason(error))
    # `read_body` logs the others.
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)


_server_logger = logging.getLogger(f"{__name__}.server")
_server_logger.addFilter(_is_no_peers_fault)


def _probe(probe: Probe | None, status: Callable[[], str] | None = None) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        reason = probe() if probe else None
        if reason is not None:
            return web.Response(status=503, text=f"{reason}\n")
        more = status() if status else ""
        return web.Response(text=f"ok\n{more}\n" if more else "ok\n")

    return handle


@dataclass(slots=True)
class _Pace:
    """When a peer may have its next answer."""

    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    next_at: float = -math.inf

    def is_over(self) -> bool:
        """Return whether nothing of it matters any more."""
        return not self.turn.locked() and time.monotonic() >= self.next_at


class _Scrapes:
    """
    The answers to scrapes of a registry: one is computed at a time, in small steps, and serves all for SCRAPE_SECONDS.

    A peer gets one in that time. So clients that scrape without pause cost no more than one a second does, in computing
    and in sending, and other requests hardly wait.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        """Compute nothing before the first scrape."""
        self._registry = registry
        self._turn = asyncio.Lock()
        self._families: list[Metric] = []
        self._answers: dict[tuple[str, bool], bytes] = {}
        self._stale_at = -math.inf
        self._peers: dict[str, _Pace] = {}

    @asynccontextmanager
    async def pace(self, peer: str) -> AsyncIterator[None]:
        """Wait until *peer* may have an answer, which the block gives it."""
        for one in [name for name, pace in self._peers.items() if pace.is_over()]:
            del self._peers[one]
        pace = self._peers.setdefault(peer, _Pace())
        async with pace.turn:
            await asyncio.sleep(pace.next_at - time.monotonic())
            try:
                yield
            finally:
                pace.next_at = time.monotonic() + SCRAPE_SECONDS

    async def answer(self, accept: str, *, is_compressed: bool) -> tuple[bytes, str]:
        """Return the text in the form that the header *accept* asks for, and its content type."""
        write, content_type = encoder(accept)
        form = content_type, is_compressed
        async with self._turn:
            if time.monotonic() >= self._stale_at:
                self._answers.clear()
                self._families = [one async for one in _stepwise(self._registry.collect()) if one is not PAUSE]
            if form not in self._answers:
                text = b"".join([part async for part in _stepwise(write(self._families))])
                # Compression leaves the interpreter to others.
                self._answers[form] = await asyncio.to_thread(gzip.compress, text, 1) if is_compressed else text
                # A registry that takes longer leaves as much time to others as this.
                self._stale_at = max(self._stale_at, time.monotonic() + SCRAPE_SECONDS)
            return self._answers[form], content_type


_REFUSALS = {
    Verdict.UNKNOWN: "the metrics need a bearer token that the API server knows\n",
    Verdict.FORBIDDEN: "the owner of the token may not get the nonResourceURL /metrics\n",
    Verdict.UNDECIDED: "the API server cannot be asked who may read the metrics\n",
}

_scrapes: "WeakKeyDictionary[CollectorRegistry, _Scrapes]" = WeakKeyDictionary()


def _scrapes_of(registry: CollectorRegistry) -> _Scrapes:
    """Return the scrapes of *registry*, which its applications share. The first call adds `process_…` to it."""
    if registry not in _scrapes:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        ProcessCollector(registry=registry)
        _scrapes[registry] = _Scrapes(registry)
    return _scrapes[registry]


async def _stepwise(steps: Iterable[T]) -> AsyncIterator[T]:
    """Yield what *steps* do, and let others go first after each STEP_SECONDS."""
    began = time.perf_counter()
    for one in steps:
        yield one
        if time.perf_counter() - began >= STEP_SECONDS:
            await asyncio.sleep(0)
            began = time.perf_counter()


def _metrics(scrapes: _Scrapes, access: Access | None) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        """Answer a scrape."""
        is_compressed = gzip_accepted(request.headers.get("Accept-Encoding", ""))
        connection = _connection(request)
        connection.stand_by()
        async with scrapes.pace(connection.peer):
            connection.work()
            verdict = (
                Verdict.ALLOWED if access is None else await access.verdict(request.headers.get("Authorization", ""))
            )
            if verdict is not Verdict.ALLOWED:
                return web.Response(
                    status=verdict.value, text=_REFUSALS[verdict], headers={"WWW-Authenticate": "Bearer"}
                )
            answer, content_type = await scrapes.answer(request.headers.get("Accept", ""), is_compressed=is_compressed)
        headers = {"Content-Type": content_type, "Vary": "Accept-Encoding"}
        if is_compressed:
            headers["Content-Encoding"] = "gzip"
        # A file is sent in pieces, so that each connection keeps one, not a copy of the whole.
        return web.Response(body=io.BytesIO(answer), headers=headers)

    return handle


def _version(name: str, version: str) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"name": name, "version": version, "python": platform.python_version()})

    return handle


@web.middleware
async def _plain_text_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    _connection(request).work()
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception as error:
        logger.error("Request failed", method=request.method, path=request.path, exc_info=error)
        return web.Response(status=500, text=f"{type(error).__name__} while answering; the log has the details\n")
