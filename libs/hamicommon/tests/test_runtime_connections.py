"""
What strangers can take of a listener, over real sockets: connections, time and bytes.
"""

import asyncio
import os
import resource
import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from hamicommon.runtime.serving import http
from hamicommon.runtime.serving.connections import listening_sockets
from hamicommon.runtime.serving.http import Server, application, read_body, serve
from hamicommon.runtime.serving.tls import Certificate

from .identities import an_identity

GET = b"GET /livez HTTP/1.1\r\nHost: h\r\n\r\n"
MIB = 1024 * 1024


@pytest.fixture
def is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let deadlines pass soon."""
    for name in ("HEAD_SECONDS", "BODY_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(http, name, 0.5)
    monkeypatch.setattr(http, "LINGER_SECONDS", 0.1)


def an_application() -> web.Application:
    """Return an application that takes bodies, answers much, and can be kept busy."""

    async def take(request: web.Request) -> web.StreamResponse:
        return web.Response(text=str(len(await read_body(request))))

    async def much(_request: web.Request) -> web.StreamResponse:
        return web.Response(body=b"x" * (32 * MIB))

    async def slow(_request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(1)
        return web.Response(text="done")

    app = application("svc", "1", registry=CollectorRegistry(), max_body_bytes=4 * MIB)
    app.router.add_post("/take", take)
    app.router.add_get("/much", much)
    app.router.add_get("/slow", slow)
    return app


@asynccontextmanager
async def serving(
    tls: Certificate | None = None, *, max_connections: int = 256, held_bytes: int = 32 * MIB
) -> AsyncIterator[Server]:
    """Serve the application with these limits."""
    server = await serve(an_application(), "127.0.0.1:0", tls, max_connections=max_connections, held_bytes=held_bytes)
    try:
        yield server
    finally:
        await server.close()


@pytest.fixture
def tls() -> Certificate:
    """A certificate for 127.0.0.1."""
    key, chain = an_identity("127.0.0.1")
    certificate = Certificate()
    certificate.take(chain, key)
    return certificate


class Peer:
    """A client that sends and reads as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def of(cls, server: Server, address: str = "127.0.0.1", *, tls: bool = False) -> "Peer":
        """Connect from *address*."""
        context = ssl._create_unverified_context() if tls else None
        return cls(
            *await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0), ssl=context, limit=1024)
        )

    def send(self, data: bytes) -> None:
        """Send *data*."""
        self._writer.write(data)

    def close(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def status(self) -> int:
        """Return the status of the next answer, which has a small body; 0 if the connection is closed instead."""
        try:
            head = await asyncio.wait_for(self._reader.readuntil(b"\r\n\r\n"), 10)
        except (asyncio.IncompleteReadError, ConnectionError):
            return 0
        await self._reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split()[0]))
        return int(head.split()[1])

    async def is_closed(self, seconds: float = 5) -> bool:
        """Return whether the server closes the connection within *seconds*."""
        try:
            async with asyncio.timeout(seconds):
                while await self._reader.read(65536):
                    pass
        except TimeoutError:
            return False
        except ConnectionError:
            pass
        return True


async def asked(peer: Peer) -> Peer:
    """Return *peer* after one complete request."""
    peer.send(GET)
    assert 200 == await peer.status()
    return peer


async def settled(server: Server, count: int) -> None:
    """Wait until *server* has *count* connections."""
    end = time.monotonic() + 10
    while len(server.connections) != count:
        assert time.monotonic() < end, f"{len(server.connections)} connections, not {count}"
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("is_tls", [False, True], ids=["plain", "tls"])
async def test_idle_connections_are_limited_and_another_peer_is_served(tls: Certificate, is_tls: bool) -> None:
    """A hundred connections that say nothing do not keep the API server out."""
    async with serving(tls if is_tls else None, max_connections=10) as server:
        idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(100)]
        await settled(server, 10)
        served = [await asked(await Peer.of(server, "127.0.0.2", tls=is_tls)) for _ in range(3)]
        assert (3, 10) == (len(served), len(server.connections))
        for _, writer in idle:
            writer.close()


async def test_a_peer_with_many_connections_takes_them_from_itself() -> None:
    """The API server keeps its idle connections although they are older, and every stranger's has asked once, too."""
    async with serving(max_connections=10) as server:
        kept = [await asked(await Peer.of(server, "127.0.0.2")) for _ in range(3)]
        strangers = [await asked(await Peer.of(server)) for _ in range(30)]

        assert [True] * 23 == [await one.is_closed() for one in strangers[:23]]
        for one in kept + strangers[23:]:
            await asked(one)


async def test_of_one_peer_the_connection_without_a_request_goes_first() -> None:
    """Behind one address translation, the API server's connections are those that have asked."""
    async with serving(max_connections=3) as server:
        api = [await asked(await Peer.of(server)) for _ in range(2)]
        silent = [await Peer.of(server) for _ in range(5)]
        await settled(server, 3)

        assert [True] * 4 == [await one.is_closed() for one in silent[:4]]
        for one in api:
            await asked(one)


async def test_a_request_that_is_being_answered_is_never_closed() -> None:
    """If all are, a newcomer waits, and is served when one is done."""
    async with serving(max_connections=3) as server:
        busy = [await Peer.of(server) for _ in range(3)]
        for one in busy:
            one.send(GET.replace(b"/livez", b"/slow"))
        await asyncio.sleep(0.1)
        newcomer = asyncio.create_task(asked(await Peer.of(server)))

        assert [200] * 3 == [await one.status() for one in busy]
        await newcomer


async def test_a_server_closes_while_a_newcomer_waits() -> None:
    """A stop is not held up by a connection that waits to be served."""
    async with serving(max_connections=1) as server:
        busy = await Peer.of(server)
        busy.send(GET.replace(b"/livez", b"/slow"))
        await asyncio.sleep(0.1)
        newcomer = await Peer.of(server)
        await asyncio.sleep(0.1)
    assert 200 == await busy.status()
    assert await newcomer.is_closed()


@pytest.mark.usefixtures("is_short")
@pytest.mark.parametrize(
    "sent", [b"", b"GET /livez HT", GET[:-2], GET + GET[:-2]], ids=["nothing", "line", "head", "second-head"]
)
async def test_a_head_that_does_not_arrive_ends_the_connection(sent: bytes) -> None:
    """Bytes that drip do not extend the time."""
    async with serving() as server:
        peer = await Peer.of(server)
        peer.send(sent)

        async def drip() -> None:
            while True:
                await asyncio.sleep(0.1)
                peer.send(b"X: y\r\n" if sent else b"")

        dripping = asyncio.create_task(drip())
        assert await peer.is_closed()
        dripping.cancel()
        await settled(server, 0)


@pytest.mark.usefixtures("is_short")
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01\x02"], ids=["nothing", "part"])
async def test_a_handshake_that_does_not_end_is_cut(tls: Certificate, sent: bytes) -> None:
    """It costs most of all, because it needs OpenSSL's buffers."""
    async with serving(tls) as server:
        peer = await Peer.of(server)
        peer.send(sent)

        assert await peer.is_closed()
        await settled(server, 0)


async def test_what_is_no_handshake_ends_at_once(tls: Certificate) -> None:
    """A plain request at a TLS port is answered by OpenSSL."""
    async with serving(tls) as server:
        peer = await Peer.of(server)
        peer.send(GET)

        assert await peer.is_closed(0.4)
        await settled(server, 0)


async def test_a_server_closes_while_handshakes_are_unfinished(tls: Certificate) -> None:
    """A stop does not wait for a peer that says nothing."""
    async with serving(tls) as server:
        peer = await Peer.of(server)
        await settled(server, 1)
    assert await peer.is_closed(0.4)


@pytest.mark.usefixtures("is_short")
async def test_a_body_that_does_not_arrive_is_408_and_the_end() -> None:
    """The peer learns why."""
    async with serving() as server:
        peer = await Peer.of(server)
        peer.send(b"POST /take HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nx")

        assert 408 == await peer.status()
        assert await peer.is_closed()
        await settled(server, 0)


async def test_bodies_on_their_way_are_limited_together() -> None:
    """Of the peer with the most bytes the oldest body is 503; another peer's small body is taken."""
    head = b"POST /take HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n"
    async with serving(held_bytes=8 * MIB) as server:
        stalled = []
        for _ in range(5):
            peer = await Peer.of(server)
            peer.send(head % (3 * MIB) + b"x" * (3 * MIB - 1))
            stalled.append(peer)
            await asyncio.sleep(0.05)
        other = await Peer.of(server, "127.0.0.2")
        other.send(head % MIB + b"x" * MIB)

        assert 200 == await other.status()
        assert [503] * 3 == [await one.status() for one in stalled[:3]]
        assert await stalled[0].is_closed()
        for one in stalled[3:]:
            one.send(b"x")
            assert 200 == await one.status()


async def test_a_compressed_body_is_415() -> None:
    """A few bytes cannot become many; no client of Kubernetes compresses what it sends."""
    async with serving() as server:
        peer = await Peer.of(server)
        peer.send(b"POST /take HTTP/1.1\r\nHost: h\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}")

        assert 415 == await peer.status()


@pytest.mark.usefixtures("is_short")
async def test_an_answer_that_nobody_reads_ends_the_connection() -> None:
    """Its memory returns."""
    async with serving() as server:
        peer = await Peer.of(server)
        peer.send(GET.replace(b"/livez", b"/much"))
        await asyncio.sleep(0.1)
        assert 1 == len(server.connections)

        await settled(server, 0)


async def test_answers_that_nobody_reads_are_limited_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest is cut long before its time is over."""
    monkeypatch.setattr(http, "ANSWER_SECONDS", 60)
    async with serving(held_bytes=70 * MIB) as server:
        readers = [await Peer.of(server) for _ in range(5)]
        for one in readers:
            one.send(GET.replace(b"/livez", b"/much"))
            await asyncio.sleep(0.1)

        await settled(server, 2)
        for one in readers:
            one.close()


async def test_heads_are_limited_together() -> None:
    """A head may have a MiB, so many of them would be much."""
    async with serving(held_bytes=MIB) as server:
        peers = [await Peer.of(server) for _ in range(10)]
        for one in peers:
            one.send(b"GET /livez HTTP/1.1\r\n" + (b"X: " + b"y" * 8000 + b"\r\n") * 30)
        await settled(server, 4)


@pytest.mark.usefixtures("is_short")
async def test_many_requests_on_one_connection_are_served() -> None:
    """The API server and kube-scheduler use a connection for long: neither number nor age ends it."""
    async with serving(held_bytes=4 * MIB) as server, aiohttp.ClientSession() as session:
        for _ in range(20):
            async with session.post(f"http://127.0.0.1:{server.port}/take", data=b"x" * MIB) as response:
                assert str(MIB) == await response.text()
        await asyncio.sleep(0.7)
        async with session.get(f"http://127.0.0.1:{server.port}/livez") as response:
            assert 200 == response.status
        assert 1 == len(server.connections)


async def test_the_first_connection_closed_at_a_limit_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator sees who takes too much; a flood does not fill the log."""
    async with serving(max_connections=1) as server:
        with capture_logs() as lines:
            for _ in range(9):
                await Peer.of(server, "127.0.0.3")
            await asyncio.sleep(0.1)
    assert [("warning", "connections", "127.0.0.3")] == [
        (line["log_level"], line["limit"], line["peer"]) for line in lines
    ]


async def test_a_process_without_free_files_accepts_again_once_there_are_some() -> None:
    """At its limit of open files it neither spins nor stops to listen."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving() as server:
        first = await asked(await Peer.of(server))
        with capture_logs() as lines, socket.socket() as client:
            client.setblocking(False)
            free = os.dup(client.fileno())
            os.close(free)
            resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
            try:
                await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", server.port))
                await asyncio.sleep(0.3)
                await asked(first)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await settled(server, 2)
    assert {("warning", "Too many open files")} == {(line["log_level"], line["error"]) for line in lines}
    assert len(lines) < 6


async def test_every_address_of_a_host_has_the_same_free_port() -> None:
    """`localhost` has two."""
    found = await listening_sockets("localhost", 0)
    assert 1 == len({one.getsockname()[1] for one in found})
    for one in found:
        one.close()
