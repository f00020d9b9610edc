"""
The control daemon of MPS v3: its sockets, its servers and their clients.

Owns the folder of pipes. Each connection is a client's or a command's. A message has words, separated by `SEPARATOR`:

| from | message | answer |
|---|---|---|
| command | `command` and its words | `<exit status>`, text |
| client | `attach`, its percentage or empty, its program | `attached`, number, percentage, bytes, UUIDs |
| client | `open` or `close`, UUID: a context | `ok` |
| client | any of these | `error`, number of the CUDA error |
| daemon | `event`, number of the CUDA error that every later call of the client returns | |

Without an answer, as from a server that does not run, the client uses the GPU without MPS. NVIDIA's protocol is not
published; only its types of sockets and their places are the same. `commands` knows what commands mean.
"""

import asyncio
import os
import shutil
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from fake_driver.mps.model import DEFAULT, Limits, MpsError, ServerSettings

SEPARATOR = "\x1f"
MESSAGE_BYTES = 1 << 16
CONTEXTS_MAX = 60
"""Client contexts per GPU."""
DRAIN_SECONDS = 0.01
"""How often to ask whether a client that is terminated has finished its work."""

ILLEGAL_ADDRESS = 700
NOT_PERMITTED = 800
RPC_FAILURE = 806
SERVER_NOT_READY = 807
MAX_CONNECTIONS_REACHED = 809
CLIENT_TERMINATED = 810


@dataclass(frozen=True)
class Peer:
    """The process at the other end of a connection."""

    pid: int
    """As the daemon's PID namespace has it; 0 if it does not."""
    uid: int


class _RefusedError(Exception):
    """A client is refused with the CUDA error *number*."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(eq=False)
class Client:
    """A process that runs under MPS."""

    number: int
    peer: Peer
    command: str
    namespace: "Namespace"
    connection: socket.socket
    contexts: list[str] = field(default_factory=list)
    """The UUID of each context's GPU."""

    def send(self, *words: object) -> None:
        """Send a message. A client that does not read loses it."""
        _send(self.connection, *words)


class Listener:
    """The socket `control` in a folder, and what serves its connections."""

    def __init__(self, folder: Path, serve: Callable[[socket.socket], Awaitable[None]]) -> None:
        """
        Make the folder and the socket.

        Raises:
            OSError: they cannot be made. A path of more than 107 characters is too long for a socket.
        """
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)
        self.folder, self._serve = folder, serve
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connections: set[asyncio.Task[None]] = set()
        try:
            self._socket.bind(str(folder / "control"))
        except OSError:
            self._socket.close()
            raise
        (folder / "control").chmod(0o666)
        self._socket.listen(128)
        self._socket.setblocking(False)
        self._task = asyncio.create_task(self._accept())

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(self._socket)
            task = asyncio.create_task(self._handle(connection))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _handle(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.setblocking(False)
            await self._serve(connection)

    def close(self) -> None:
        """Accept no more connections, and remove the folder. Connections stay."""
        self._task.cancel()
        self._socket.close()
        (self.folder / "control").unlink(missing_ok=True)
        with suppress(OSError):
            self.folder.rmdir()


@dataclass(eq=False)
class Namespace:
    """A group of clients with common limits."""

    name: str
    server: "Server"
    limits: Limits
    listener: Listener


class Server:
    """A server and its process."""

    def __init__(self, settings: ServerSettings, process: asyncio.subprocess.Process) -> None:
        self.settings, self.process = settings, process
        self.listeners: list[Listener] = []
        self.namespaces: dict[str, Namespace] = {}
        self.devices: tuple[str, ...] = ()
        """The UUIDs of its GPUs, once it is started."""
        self.started, self.ended = asyncio.Event(), asyncio.Event()
        """It has started, or has failed to; it is gone."""
        self.affected: set[Client] = set()
        """Clients that a fault has hit, and that must leave before others are accepted."""
        self.hangs = False
        """Whether a client was killed at work while it was alone, so that later ones wait for ever."""
        self._answers: dict[tuple[str, ...], asyncio.Future[tuple[str, ...]]] = {}

    @property
    def status(self) -> str:
        """The status in lists. A server that hangs looks well."""
        if not self.started.is_set():
            return "Initializing"
        return "Fault" if self.affected else "Ready"

    async def read(self) -> None:
        """Read what the process says, until it ends."""
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode().split():
            if line[0] == "ready":
                self.devices = tuple(line[1:])
                self.started.set()
            elif (answer := self._answers.pop(tuple(line[:2]), None)) is not None:
                answer.set_result(tuple(line[2:]))
        await self.process.wait()
        self.ended.set()
        self.started.set()
        for answer in self._answers.values():
            answer.set_result(())

    async def work_of(self, client: Client) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs on which a client has work."""
        return await self._ask("work", str(client.number))

    async def faults_of(self, client: Client) -> tuple[str, ...]:
        """Return the UUIDs of the GPUs that have a fault because a client, which is dead, had work there."""
        return await self._ask("fault", str(client.number))

    async def hold(self, uuid: str) -> tuple[str, ...]:
        """Make the server's own context on a GPU. Return the number of the CUDA error if that fails."""
        return await self._ask("hold", uuid)

    async def _ask(self, question: str, about: str) -> tuple[str, ...]:
        assert self.process.stdin is not None
        if self.ended.is_set():
            return ()
        answer = self._answers.setdefault((question, about), asyncio.get_running_loop().create_future())
        self.process.stdin.write(f"{question} {about}\n".encode())
        return await answer


class Daemon:
    """The daemon with its folders. `serve` runs it."""

    def __init__(self, pipe: Path, log: Path, server_program: Path, *, is_multiuser: bool) -> None:
        self.pipe, self.log, self.is_multiuser = pipe, log, is_multiuser
        self.uid = os.geteuid()
        self.servers: dict[str, Server] = {}
        self.clients: list[Client] = []
        self._program = server_program
        self._listener: Listener | None = None
        self._ended, self._creation = asyncio.Event(), asyncio.Lock()
        self._numbers = int.from_bytes(os.urandom(6), "little") << 12
        self._commands: Callable[[Daemon, Peer, list[str]], Awaitable[str]]
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, commands: Callable[["Daemon", Peer, list[str]], Awaitable[str]]) -> None:
        """
        Make the main socket, after removing what an earlier daemon left.

        Raises:
            OSError: the folder or the socket cannot be made.
        """
        self._commands = commands
        for socket_left in [*self.pipe.glob("*/*/control"), *self.pipe.glob("*/control"), self.pipe / "control"]:
            socket_left.unlink(missing_ok=True)
            if socket_left.parent != self.pipe:
                with suppress(OSError):
                    socket_left.parent.rmdir()
        self._listener = Listener(self.pipe, lambda connection: self._talk(connection, None))
        self.log.mkdir(parents=True, exist_ok=True)
        with (self.log / "control.log").open("a") as file:
            file.write(f"Starting control daemon using socket {self.pipe / 'control'}\n")

    async def serve(self) -> None:
        """Serve until `quit`."""
        await self._ended.wait()
        for server in list(self.servers.values()):
            await self.stop(server)
        if self._listener is not None:
            self._listener.close()

    def quit(self) -> None:
        """End, with all servers."""
        self._ended.set()

    def is_owner(self, uid: int, owner: int) -> bool:
        """Return whether a user may change what *owner* has. Root is every container's root, too."""
        return uid in (owner, *administrators())

    def clients_of(self, server: Server, namespace: str | None = None) -> list[Client]:
        """Return the clients of a server, or of one of its namespaces."""
        return [
            client
            for client in self.clients
            if client.namespace.server is server and namespace in (None, client.namespace.name)
        ]

    async def create_server(self, settings: ServerSettings) -> Server:
        """
        Start a server with its namespace `default`. Whether it can use its GPUs shows later.

        Raises:
            MpsError: there is one of that name, or its sockets cannot be made.
        """
        async with self._creation:
            return await self._create(settings)

    def create_namespace(self, server: Server, name: str, limits: Limits | None = None) -> Namespace:
        """
        Add a namespace to a server.

        Raises:
            MpsError: there is one of that name, or its socket cannot be made.
        """
        if name in server.namespaces:
            raise MpsError(f"Namespace '{name}' already exists in server '{server.settings.name}'.")
        listener = self._listen(server, self.pipe / server.settings.name / name, name)
        server.namespaces[name] = Namespace(name, server, limits or Limits(), listener)
        return server.namespaces[name]

    def delete_namespace(self, namespace: Namespace) -> None:
        """Remove a namespace, which has no client."""
        del namespace.server.namespaces[namespace.name]
        namespace.listener.close()
        namespace.server.listeners.remove(namespace.listener)

    async def stop(self, server: Server) -> None:
        """Remove a server. Its clients lose it, and the sockets are gone."""
        if self.servers.pop(server.settings.name, None) is None:
            return
        for listener in reversed(server.listeners):
            listener.close()
        shutil.rmtree(self.pipe / server.settings.name, ignore_errors=True)
        with suppress(ProcessLookupError):
            server.process.terminate()
        for client in self.clients_of(server):
            self._forget(client)
            with suppress(OSError):
                client.connection.shutdown(socket.SHUT_RDWR)
        await server.ended.wait()

    async def terminate(self, client: Client) -> None:
        """Let a client launch nothing more, and wait until its work is done. On a server that hangs this hangs."""
        server = client.namespace.server
        client.send("event", CLIENT_TERMINATED)
        if server.hangs:
            await server.ended.wait()
        while client in self.clients:
            if not await server.work_of(client):
                self._forget(client)
            await asyncio.sleep(DRAIN_SECONDS)

    # --- sockets -----------------------------------------------------------------------------------------------------

    async def _create(self, settings: ServerSettings) -> Server:
        if settings.name in self.servers:
            raise MpsError(f"Server '{settings.name}' already exists.")
        log = self.log / settings.name
        log.mkdir(exist_ok=True)
        with (log / "server.log").open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                self._program,
                *settings.allowed_devices,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
            )
        server = Server(settings, process)
        self.servers[settings.name] = server
        self._run(self._watch(server))
        try:
            self.create_namespace(server, DEFAULT)
            self._listen(server, self.pipe / settings.name, DEFAULT)
        except MpsError:
            await self.stop(server)
            raise
        return server

    def _listen(self, server: Server, folder: Path, name: str) -> Listener:
        try:
            listener = Listener(folder, lambda connection: self._talk(connection, server.namespaces[name]))
        except OSError as error:
            raise MpsError(f"Cannot create the socket {folder / 'control'}: {error}") from error
        server.listeners.append(listener)
        return listener

    async def _talk(self, connection: socket.socket, namespace: Namespace | None) -> None:
        """Serve a connection. Without a namespace the client's user decides about its server."""
        loop = asyncio.get_running_loop()
        peer = _peer(connection)
        client: Client | None = None
        try:
            while message := await loop.sock_recv(connection, MESSAGE_BYTES):
                verb, *words = message.decode(errors="replace").split(SEPARATOR)
                if verb == "command":
                    await loop.sock_sendall(connection, (await self._answer(peer, words)).encode())
                elif verb == "attach" and client is None:
                    client = await self._attach(connection, peer, words, namespace)
                    if client is None:
                        return
                elif client is not None:
                    client.send(*await self._count(client, verb, words[0]))
        except _RefusedError as refused:
            _send(connection, "error", refused.number)
        finally:
            if client is not None and not self._ended.is_set():
                await self._leave(client)

    async def _answer(self, peer: Peer, words: list[str]) -> str:
        try:
            text, status = await self._commands(self, peer, words), 0
        except MpsError as error:
            text, status = str(error), 1
        return f"{status}{SEPARATOR}{text}"

    async def _attach(
        self, connection: socket.socket, peer: Peer, words: list[str], namespace: Namespace | None
    ) -> Client | None:
        """
        Accept a client. None if its server did not start.

        Raises:
            _RefusedError: it gets an error.
        """
        percentage, command = words
        try:
            namespace = namespace or await self._namespace_of(peer.uid)
        except MpsError as error:
            raise _RefusedError(NOT_PERMITTED) from error
        server = namespace.server
        if not self.is_multiuser and peer.uid != server.settings.uid:
            raise _RefusedError(NOT_PERMITTED)
        await server.started.wait()
        if server.hangs:
            await server.ended.wait()
            raise _RefusedError(RPC_FAILURE)
        if server.ended.is_set():
            return None
        if server.affected:
            raise _RefusedError(SERVER_NOT_READY)
        self._numbers += 1
        client = Client(self._numbers, peer, command, namespace, connection)
        self.clients.append(client)
        limits = namespace.limits
        share = min(limits.percentage, float(percentage) or limits.percentage)
        client.send("attached", client.number, share, limits.memory_bytes, *server.devices)
        return client

    async def _namespace_of(self, uid: int) -> Namespace:
        """Return the default namespace of the server for a user's clients, which is started if necessary."""
        owner = self.uid if self.is_multiuser else uid
        if owner != self.uid and self.uid not in administrators():
            raise MpsError("Only root starts servers for other users.")
        name = f"uid_{owner}"
        async with self._creation:
            server = self.servers.get(name) or await self._create(ServerSettings(name, owner))
        return server.namespaces[DEFAULT]

    async def _count(self, client: Client, verb: str, uuid: str) -> tuple[object, ...]:
        """Note that a client makes or ends a context on a GPU, and return the answer."""
        if verb == "close":
            with suppress(ValueError):
                client.contexts.remove(uuid)
        elif sum(each.contexts.count(uuid) for each in self.clients) >= CONTEXTS_MAX:
            return "error", MAX_CONNECTIONS_REACHED
        else:
            client.contexts.append(uuid)
            for error in await client.namespace.server.hold(uuid):
                client.contexts.remove(uuid)
                return "error", error
        return ("ok",)

    # --- ends --------------------------------------------------------------------------------------------------------

    def _forget(self, client: Client) -> None:
        with suppress(ValueError):
            self.clients.remove(client)
        client.namespace.server.affected.discard(client)

    async def _leave(self, client: Client) -> None:
        """Note the end of a client. If it was killed at work, its GPUs have a fault."""
        server = client.namespace.server
        is_known = client in self.clients and client not in server.affected
        self._forget(client)
        for uuid in await server.faults_of(client) if is_known else ():
            self._fault(server, uuid)

    def _fault(self, server: Server, uuid: str) -> None:
        others = [client for client in self.clients if uuid in client.contexts]
        server.hangs = server.hangs or not others
        for client in others:
            client.namespace.server.affected.add(client)
            client.send("event", ILLEGAL_ADDRESS)

    async def _watch(self, server: Server) -> None:
        await server.read()
        await self.stop(server)

    def _run(self, coroutine: Awaitable[None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def administrators() -> Iterator[int]:
    """Yield the users who are root of the node: root, and who owns `FAKE_DRIVER_DIR` and so made the node."""
    yield 0
    if folder := os.environ.get("FAKE_DRIVER_DIR"):
        with suppress(OSError):
            yield Path(folder).stat().st_uid


def _send(connection: socket.socket, *words: object) -> None:
    with suppress(OSError):
        connection.send(SEPARATOR.join(map(str, words)).encode())


def _peer(connection: socket.socket) -> Peer:
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    pid, uid, _ = struct.unpack("iII", packed)
    return Peer(pid, uid)
