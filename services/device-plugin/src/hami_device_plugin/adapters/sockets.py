"""
Serve gRPC at sockets, and tell those of this process from those of others.

Neighbours: `kubelet` and `dra` say what is served. A kubelet or another plugin may replace or remove the files.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc

from hamicommon.errors import HamiError

DRAIN_SECONDS = 5.0
"""How long calls in progress may run on when a server stops."""
Add = Callable[[grpc.aio.Server], object]
"""Adds what a server answers."""


class SocketError(HamiError):
    """A socket cannot be served."""


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Raise SocketError for the errors of a block that makes the socket *path*."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        raise SocketError(f"cannot serve at {path}: {error}") from error


class ServedSocket:
    """
    A server at one socket.

    The socket is bound under a private name and then renamed, so it appears only once it is served. A plugin that stops
    removes only its own socket, so an older plugin cannot remove a younger one's.
    """

    def __init__(self, path: Path) -> None:
        """Serve at *path* once started."""
        self.path = path
        self._server: grpc.aio.Server | None = None
        self._inode: int | None = None

    async def start(self, private_name: str, *add: Add) -> None:
        """
        Serve what *add* adds; the socket has *private_name* in the same folder until then.

        Raises:
            SocketError: the socket cannot be created.
        """
        server, private = grpc.aio.server(), self.path.with_name(private_name)
        for each in add:
            each(server)
        try:
            with errors_of(self.path):
                server.add_insecure_port(f"unix:{private}")
                await server.start()
                private.rename(self.path)
        except SocketError:
            await server.stop(None)
            raise
        self._server, self._inode = server, socket_identity(self.path)

    def remove(self) -> None:
        """Remove the socket if it is still this server's. Calls in progress go on."""
        if self.is_in_place():
            self.path.unlink(missing_ok=True)

    async def stop(self) -> None:
        """Finish the calls in progress."""
        if self._server is not None:
            await self._server.stop(DRAIN_SECONDS)

    def is_in_place(self) -> bool:
        """Return whether the socket at this path is still this server's."""
        return self._inode is not None and socket_identity(self.path) == self._inode


def is_served(path: Path) -> bool:
    """Return whether a process listens at the socket *path*."""
    with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1.0)
        probe.connect(str(path))
        return True
    return False


def socket_identity(path: Path) -> int | None:
    """Return a number that differs between two sockets created at *path*; None if there is no socket."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
