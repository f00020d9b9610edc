"""
The HTTP server of a service: health, metrics, version. The only module with aiohttp.

If a handler fails, the server logs it and answers 500 with one line of text. A bad request is answered with 400 and one
debug line, so that no client can fill the log.
Neighbours: `tls` has the certificate, `exposition` writes the metrics.
"""

import asyncio
import gzip
import logging
import os
import platform
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from prometheus_client import CollectorRegistry, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import gzip_accepted

from hamicommon.errors import HamiError
from hamicommon.runtime.serving.exposition import encoder
from hamicommon.runtime.serving.tls import Certificate, FileCertificate

KEEP_ALIVE_SECONDS = 120.0
BODY_SECONDS = 60.0
"""Longest wait for a request's body, as in HAMi."""
DRAIN_SECONDS = 10.0
"""Longest wait for running requests when the server closes."""

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
    max_body_bytes: int = 16 * 1024 * 1024,
) -> web.Application:
    """
    Return an application with GET /livez, /healthz (the same), /readyz, /metrics and /version; add routes to it.

    If a probe returns a reason, the answer is 503 with the reason as text. If the service is ready, *status* returns
    what else /readyz says. /metrics has *registry*, and `process_…` for this process. Metrics do not say when they were
    created: nobody reads that, and it doubles the series of every counter.
    """
    disable_created_metrics()  # type: ignore[no-untyped-call]
    ProcessCollector(registry=registry)
    app = web.Application(middlewares=[_plain_text_errors], client_max_size=max_body_bytes)
    app.router.add_get("/livez", _probe(live))
    app.router.add_get("/healthz", _probe(live))
    app.router.add_get("/readyz", _probe(ready, status))
    app.router.add_get("/metrics", _metrics(registry))
    app.router.add_get("/version", _version(name, version))
    return app


async def read_body(request: web.Request) -> bytes:
    """
    Return the whole body, limited in size by the application and in time by BODY_SECONDS.

    Raises:
        web.HTTPBadRequest: it does not match its headers, or the client closed the connection (400).
        web.HTTPRequestEntityTooLarge: it is larger than the application allows (413).
        web.HTTPRequestTimeout: it did not arrive in time (408).
    """
    try:
        if request.content.is_eof():
            return await request.read()
        async with asyncio.timeout(BODY_SECONDS):
            return await request.read()
    except TimeoutError as error:
        raise web.HTTPRequestTimeout(text=f"the body did not arrive within {BODY_SECONDS:.0f} s\n") from error
    except (web.RequestPayloadError, ConnectionError) as error:
        reason = _reason(error.__cause__ or error)
        logger.debug("Body not readable", peer=request.remote, path=request.path, reason=reason)
        raise web.HTTPBadRequest(text=f"the body cannot be read: {reason}\n") from error


class Server:
    """A listening server."""

    def __init__(self, runner: web.AppRunner, port: int, reloader: asyncio.Task[None] | None) -> None:
        """Take over *runner*, which already listens at *port*."""
        self.port = port
        self._runner = runner
        self._reloader = reloader

    async def close(self) -> None:
        """Stop listening, wait for running requests, and close the connections."""
        if self._reloader is not None:
            self._reloader.cancel()
            with suppress(asyncio.CancelledError):
                await self._reloader
        await self._runner.cleanup()


async def serve(app: web.Application, address: str, tls: Certificate | None = None, *, flag: str = "address") -> Server:
    """
    Listen at *address* and return the server.

    *address* is `host:port`, `:port` for every interface, or `[::1]:port`; port 0 selects a free port. Errors name
    *flag*. Without *tls* the server speaks plain HTTP. A certificate in files is reloaded when they change.

    Raises:
        ServeError: the address is malformed or already in use.
    """
    try:
        host, port = split_address(address)
    except ServeError as error:
        raise ServeError(f"{flag} {error}") from error
    runner = web.AppRunner(
        app,
        logger=_server_logger,
        access_log=None,
        keepalive_timeout=KEEP_ALIVE_SECONDS,
        shutdown_timeout=DRAIN_SECONDS,
        handle_signals=False,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=tls.context if tls else None)
        await site.start()
    except OSError as error:
        await runner.cleanup()
        # asyncio adds the address to the reason.
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        raise ServeError(f"{flag} {address}: cannot listen there: {reason}") from error
    reloader = asyncio.create_task(tls.follow()) if isinstance(tls, FileCertificate) else None
    return Server(runner, runner.addresses[0][1], reloader)


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


def _metrics(registry: CollectorRegistry) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        """Answer a scrape."""
        encode, content_type = encoder(request.headers.get("Accept", ""))
        headers = {"Content-Type": content_type, "Vary": "Accept-Encoding"}
        is_compressed = gzip_accepted(request.headers.get("Accept-Encoding", ""))
        if is_compressed:
            headers["Content-Encoding"] = "gzip"
        families = list(registry.collect())

        def body() -> bytes:
            text = encode(families)
            return gzip.compress(text, 1) if is_compressed else text

        # To format them takes far longer than to collect them: seconds for some hundred thousand series.
        return web.Response(body=await asyncio.to_thread(body), headers=headers)

    return handle


def _version(name: str, version: str) -> Handler:
    async def handle(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"name": name, "version": version, "python": platform.python_version()})

    return handle


@web.middleware
async def _plain_text_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except web.HTTPException:
        raise
    except Exception as error:
        logger.error("Request failed", method=request.method, path=request.path, exc_info=error)
        return web.Response(status=500, text=f"{type(error).__name__} while answering; the log has the details\n")
