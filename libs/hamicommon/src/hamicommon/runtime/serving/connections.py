"""
Bound the connections of a listener, and the bytes that they make the process hold.

Anybody who reaches a port can open connections and stop talking, so each costs little, for a limited time, and the
number is limited. At the limit no newcomer is turned away, because it may be the API server. One connection that the
server waits for is closed instead: of the peer that has the most, one that never completed a request, else the one
that has waited longest. So a peer that opens many takes them from itself. The same rule bounds bytes.
Neighbours: `http` has the connections and says what they wait for.
"""

import asyncio
import errno
import math
import socket
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

import structlog

from hamicommon.runtime import MAX_CONNECTIONS

HELD_BYTES = 32 * 1024 * 1024
"""What all peers of a listener may make it hold: heads, bodies and answers."""
BACKLOG = 1024
"""Connections that the kernel keeps until they are accepted; it may allow fewer."""
_LOG_SECONDS = 60.0
_OUT_OF_FILES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_OUT_OF_FILES_SECONDS = 0.1

logger = structlog.get_logger()


class Connection(Protocol):
    """What is known of one connection."""

    peer: str
    """Its address, without a port."""
    is_waited_for: bool
    """Whether the server waits for the peer: for a handshake, a request, the rest of one, or to read an answer."""
    has_asked: bool
    """Whether it has had an answer."""
    since: float
    """When it began to do what it does, in seconds."""
    held_bytes: int

    @property
    def is_open(self) -> bool:
        """Whether its handshake is done."""

    def cut(self) -> None:
        """Close it without waiting for the peer."""

    def refuse(self) -> None:
        """Free its memory. A request whose body is still arriving is answered, all others are cut."""


class Connections:
    """The open connections of one listener."""

    def __init__(self, limit: int = MAX_CONNECTIONS, held_bytes: int = HELD_BYTES) -> None:
        """Allow *limit* connections, which hold *held_bytes* together."""
        self.limit = limit
        self._held_bytes_limit = held_bytes
        self._all: set[Connection] = set()
        self._held_bytes = 0
        self._changed = asyncio.Event()
        self._closed = 0
        self._logged = -math.inf

    def __len__(self) -> int:
        """Return the number of open connections."""
        return len(self._all)

    async def make_room(self, peer: str) -> None:
        """Return once one more connection, of *peer*, is allowed: close another, or wait while all are answered."""
        while len(self._all) >= self.limit:
            victim = self._greediest(lambda _: 1, peer)
            if victim is None:
                self._changed.clear()
                await self._changed.wait()
            else:
                self.remove(victim)
                victim.cut()
                self._report("connections", victim.peer)

    def add(self, connection: Connection) -> None:
        """Count *connection*."""
        self._all.add(connection)

    def remove(self, connection: Connection) -> None:
        """Count *connection* no more; it may be unknown."""
        if connection in self._all:
            self._all.remove(connection)
            self.free(connection)
            self.wake()

    def wake(self) -> None:
        """Look again for a connection to close: one is gone, or waited for."""
        self._changed.set()

    def hold(self, connection: Connection, size: int) -> None:
        """
        Count *size* more bytes for *connection*. If they are too many, some connection is refused, maybe this one.

        One that is alone may hold more.
        """
        if connection not in self._all:
            return
        connection.held_bytes += size
        self._held_bytes += size
        while self._held_bytes > self._held_bytes_limit:
            victim = self._greediest(lambda one: one.held_bytes)
            if victim is None or victim.held_bytes == self._held_bytes:
                return
            self.free(victim)
            victim.refuse()
            self._report("bytes", victim.peer)

    def free(self, connection: Connection) -> None:
        """Count no bytes for *connection*."""
        self._held_bytes -= connection.held_bytes
        connection.held_bytes = 0

    def cut_unopened(self) -> None:
        """Cut the connections whose handshake is not done."""
        for one in [one for one in self._all if not one.is_open]:
            one.cut()

    def _greediest(self, weight: Callable[[Connection], int], newcomer: str | None = None) -> Connection | None:
        """Return what to close so that less is taken, as *weight* says; None if the server waits for no peer."""
        taken: Counter[str | None] = Counter({newcomer: 1})
        for one in self._all:
            taken[one.peer] += weight(one)
        found = [one for one in self._all if one.is_waited_for and weight(one)]
        return min(found, key=lambda one: (-taken[one.peer], one.has_asked, one.since), default=None)

    def _report(self, limit: str, peer: str) -> None:
        """Log the first of the connections that are closed within a minute, and how many were before."""
        self._closed += 1
        now = asyncio.get_running_loop().time()
        if now - self._logged >= _LOG_SECONDS:
            logger.warning("Connections closed at a limit", limit=limit, peer=peer, closed=self._closed)
            self._logged, self._closed = now, 0


Open = Callable[[socket.socket, str], None]
"""Take over an accepted socket of a peer."""


async def accept(listener: socket.socket, connections: Connections, open_socket: Open) -> None:
    """Accept what arrives at *listener*, as *connections* allow, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            accepted, address = await loop.sock_accept(listener)
        except OSError as error:
            # Others are the end of a connection that was not yet accepted.
            if error.errno in _OUT_OF_FILES:
                logger.warning("No connection can be accepted", error=error.strerror)
                await asyncio.sleep(_OUT_OF_FILES_SECONDS)
            continue
        peer = str(address[0]).removeprefix("::ffff:")
        try:
            await connections.make_room(peer)
        except asyncio.CancelledError:
            accepted.close()
            raise
        open_socket(accepted, peer)
        # What arrived before is served before the next is accepted.
        await asyncio.sleep(0)


async def listening_sockets(host: str | None, port: int) -> list[socket.socket]:
    """
    Return sockets that listen at each address of *host*, None: every interface. Port 0 is one free port for all.

    Raises:
        OSError: the address cannot be used.
    """
    if host is None:
        is_dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if is_dual else socket.AF_INET
        return [_listening(family, ("", port), is_dual=is_dual)]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, _, _, _, address in dict.fromkeys(found):
            chosen = sockets[0].getsockname()[1] if sockets else port
            sockets.append(_listening(family, (address[0], chosen, *address[2:])))
    except OSError:
        for one in sockets:
            one.close()
        raise
    return sockets


def _listening(family: int, address: tuple[object, ...], *, is_dual: bool = False) -> socket.socket:
    made = socket.create_server(address, family=family, backlog=BACKLOG, dualstack_ipv6=is_dual)
    made.setblocking(False)
    return made


async def cancelled(task: "asyncio.Task[None]") -> None:
    """Cancel *task* and wait for its end."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
