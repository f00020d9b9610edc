"""
The commands of MPS v3, `<module> <verb> [arguments] [--key=value] [--flag]`, and their answers.

Source: https://docs.nvidia.com/deploy/mps/mpsv3-interface.html. SM partitions, locality domains, features and device
lists are not modelled; their commands are errors.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from fake_driver.mps import table
from fake_driver.mps.daemon import Client, Daemon, Namespace, Peer, Server
from fake_driver.mps.model import DEFAULT, LIMIT_OPTIONS, MpsError, ServerSettings, checked_name, devices

_NONE = "-"
SERVER_COLUMNS = {
    "NAME": 16,
    "UID": 8,
    "PID": 8,
    "STATUS": 13,
    "PIPE DIRECTORY": 32,
    "ALLOWED DEVICES": 40,
    "CONTEXT IDS": 11,
}
NAMESPACE_COLUMNS = {
    "NAME": 16,
    "SERVER": 13,
    "SERVER STATUS": 13,
    "PINNED MEMORY LIMIT": 19,
    "ACTIVE THREAD PERCENTAGE": 24,
    "CLIENT PRIORITY": 15,
    "PIPE DIRECTORY": 32,
}
CLIENT_COLUMNS = {"PID": 6, "SERVER": 13, "DEVICE": 40, "NAMESPACE": 32, "COMMAND": 16}
MODULES = ("server", "namespace", "client")


@dataclass
class Request:
    """A command with its words taken apart."""

    daemon: Daemon
    peer: Peer
    name: str
    arguments: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)

    def server(self, name: str | None) -> Server:
        """Return the server of that name, or of the option `server`."""
        name = name or self.options.get("server")
        if name is None:
            raise MpsError(f"{self.name}: give --server=<name>.")
        found = self.daemon.servers.get(name)
        if found is None:
            raise MpsError(f"Server '{name}' not found.")
        return found

    def namespace(self, name: str, server: str | None = None) -> Namespace:
        """Return a namespace of that name in a server."""
        found = self.server(server).namespaces.get(name)
        if found is None:
            raise MpsError(f"Namespace '{name}' not found.")
        return found

    def check_owner(self, server: Server) -> None:
        """Reject users who do not own *server*."""
        self.check_user(server.settings.uid, "server owner")

    def check_user(self, owner: int, who: str) -> None:
        """Reject users other than *owner* and root."""
        if not self.daemon.is_owner(self.peer.uid, owner):
            raise MpsError(f"Insufficient privileges for UID {self.peer.uid}. '{self.name.upper()}' requires {who}.")

    def check_idle(self, server: Server, namespace: str | None = None) -> None:
        """Reject a change of what has clients."""
        if self.daemon.clients_of(server, namespace):
            what = f"Namespace '{namespace}'" if namespace else f"Server '{server.settings.name}'"
            raise MpsError(f"{what} has active clients.")

    def listed(self, columns: dict[str, int], rows: Iterable[Sequence[str]]) -> str:
        """Return a list in the format that the command asks for."""
        return table.write(columns, rows, self.options.get("format", "table"))


async def run(daemon: Daemon, peer: Peer, words: list[str]) -> str:
    """
    Run a command, and return its answer.

    Raises:
        MpsError: it is rejected.
    """
    if words == ["quit"]:
        request = Request(daemon, peer, "quit")
        request.check_user(daemon.uid, "daemon owner")
        daemon.quit()
        return ""
    command = _COMMANDS.get((words[0], words[1])) if len(words) > 1 else None
    if command is None:
        raise MpsError(f"Invalid command '{' '.join(words)}'. Modules: {', '.join(MODULES)}.")
    return await command.run(command.parse(Request(daemon, peer, f"{words[0]} {words[1]}"), words[2:]))


@dataclass(frozen=True)
class _Command:
    run: Callable[[Request], Awaitable[str]]
    arguments: tuple[int, int]
    """The fewest and the most."""
    options: frozenset[str] = frozenset()
    flags: frozenset[str] = frozenset()

    def parse(self, request: Request, words: list[str]) -> Request:
        for word in words:
            key, equals, value = word.partition("=")
            key = key.removeprefix("--")
            if equals and key in self.options:
                request.options[key] = value
            elif word.startswith("--") and not equals and key in self.flags:
                request.flags.add(key)
            elif equals or word.startswith("--"):
                raise MpsError(f"{request.name}: invalid option '{word}'.")
            else:
                request.arguments.append(word)
        fewest, most = self.arguments
        if not fewest <= len(request.arguments) <= most:
            raise MpsError(f"{request.name}: wrong number of arguments.")
        return request


# --- server ----------------------------------------------------------------------------------------------------------


async def _create_server(request: Request) -> str:
    daemon, options = request.daemon, request.options
    text = options.get("uid", str(request.peer.uid))
    if not text.isdecimal() or not (request.arguments or "uid" in options):
        raise MpsError("server create: give a name or --uid=<n>, a number.")
    uid = int(text)
    if daemon.is_multiuser and "uid" in options and uid != 0:
        raise MpsError("In multiuser mode only --uid=0 is allowed.")
    request.check_user(uid, "server owner")
    name = request.arguments[0] if request.arguments else f"uid_{uid}"
    allowed = devices(options.get("allowed-devices", ""))
    await daemon.create_server(ServerSettings(checked_name(name, "server"), uid, allowed))
    return ""


async def _delete_server(request: Request) -> str:
    server = request.server(request.arguments[0])
    request.check_owner(server)
    await _end_clients(request, server)
    await request.daemon.stop(server)
    return ""


async def _list_servers(request: Request) -> str:
    servers = [request.server(name) for name in request.arguments] or request.daemon.servers.values()
    return request.listed(SERVER_COLUMNS, [[*_server_fields(request.daemon, each).values(), _NONE] for each in servers])


async def _set_server(request: Request) -> str:
    return _set_limits(request, request.server(request.arguments[0]).namespaces[DEFAULT])


async def _get_server(request: Request) -> str:
    name, wanted = request.arguments
    return _field(_server_fields(request.daemon, request.server(name)), wanted)


def _server_fields(daemon: Daemon, server: Server) -> dict[str, str]:
    settings = server.settings
    return {
        "name": settings.name,
        "uid": str(settings.uid),
        "pid": str(server.process.pid),
        "status": server.status,
        "pipe-directory": str(daemon.pipe / settings.name),
        "allowed-devices": ",".join(settings.allowed_devices) or _NONE,
    }


# --- namespace -------------------------------------------------------------------------------------------------------


async def _create_namespace(request: Request) -> str:
    server = request.server(None)
    request.check_owner(server)
    request.daemon.create_namespace(server, checked_name(request.arguments[0], "namespace"))
    return ""


async def _delete_namespace(request: Request) -> str:
    namespace = request.namespace(request.arguments[0])
    request.check_owner(namespace.server)
    if namespace.name == DEFAULT:
        raise MpsError(f"Namespace '{DEFAULT}' cannot be deleted.")
    await _end_clients(request, namespace.server, namespace.name)
    request.daemon.delete_namespace(namespace)
    return ""


async def _list_namespaces(request: Request) -> str:
    servers = [request.server(None)] if "server" in request.options else list(request.daemon.servers.values())
    wanted = request.arguments or None
    found = [
        namespace
        for server in servers
        for namespace in reversed(server.namespaces.values())
        if wanted is None or namespace.name in wanted
    ]
    if wanted and not found:
        raise MpsError(f"Namespace '{wanted[0]}' not found.")
    return request.listed(NAMESPACE_COLUMNS, [list(_namespace_fields(each).values()) for each in found])


async def _set_namespace(request: Request) -> str:
    return _set_limits(request, request.namespace(request.arguments[0]))


async def _get_namespace(request: Request) -> str:
    name, server, wanted = request.arguments
    return _field(_namespace_fields(request.namespace(name, server)), wanted)


def _namespace_fields(namespace: Namespace) -> dict[str, str]:
    limits = namespace.limits
    return {
        "name": namespace.name,
        "server": namespace.server.settings.name,
        "server-status": namespace.server.status,
        "pinned-memory-limit": limits.memory,
        "active-thread-percentage": f"{limits.percentage:.2f}",
        "client-priority": str(limits.priority),
        "pipe-directory": str(namespace.listener.folder),
    }


def _set_limits(request: Request, namespace: Namespace) -> str:
    request.check_owner(namespace.server)
    changes = {key: value for key, value in request.options.items() if key in LIMIT_OPTIONS}
    if not changes:
        raise MpsError(
            f"{request.name}: give at least one of {', '.join(f'--{key}' for key in sorted(LIMIT_OPTIONS))}."
        )
    limits = namespace.limits.changed(changes)
    request.check_idle(namespace.server, namespace.name)
    namespace.limits = limits
    return ""


# --- client ----------------------------------------------------------------------------------------------------------


async def _list_clients(request: Request) -> str:
    daemon = request.daemon
    clients = daemon.clients_of(request.server(None)) if "server" in request.options else daemon.clients
    rows = [_client_row(client, device) for client in clients for device in _devices(client)]
    return request.listed(CLIENT_COLUMNS, rows)


async def _get_client(request: Request) -> str:
    client = _client(request)
    names = ("pid", "server", "device", "namespace", "cmd")
    return _field(dict(zip(names, _client_row(client, _devices(client)[0]), strict=True)), request.arguments[1])


async def _terminate_client(request: Request) -> str:
    client = _client(request)
    request.check_owner(client.namespace.server)
    await request.daemon.terminate(client)
    return ""


def _client(request: Request) -> Client:
    """Return the client of a pid. A client of another PID namespace has pid 0, by which none is found."""
    pid = request.arguments[0]
    for client in request.daemon.clients:
        if client.peer.pid and str(client.peer.pid) == pid:
            return client
    raise MpsError(f"Client with PID {pid} not found.")


def _devices(client: Client) -> list[str]:
    """Return the UUIDs of the GPUs that a client uses, each once; `-` before its first context."""
    return list(dict.fromkeys(client.contexts)) or [_NONE]


def _client_row(client: Client, device: str) -> list[str]:
    namespace = client.namespace
    server = namespace.server.settings.name
    place = f"{server}/{namespace.name} ({namespace.limits.priority})"
    return [str(client.peer.pid), server, device, place, client.command]


# --- common ----------------------------------------------------------------------------------------------------------


async def _end_clients(request: Request, server: Server, namespace: str | None = None) -> None:
    """Reject the command while there are clients. With `--force`, terminate them."""
    if "force" not in request.flags:
        request.check_idle(server, namespace)
    for client in request.daemon.clients_of(server, namespace):
        await request.daemon.terminate(client)


def _field(fields: dict[str, str], name: str) -> str:
    """Return a field by its name, in which `_` and `-` are the same."""
    found = fields.get(name.replace("_", "-"))
    if found is None:
        raise MpsError(f"Unknown field '{name}': use one of {', '.join(fields)}.")
    return found


_Formatted = partial(_Command, options=frozenset({"format", "server"}))
_COMMANDS = {
    ("server", "create"): _Command(_create_server, (0, 1), frozenset({"uid", "allowed-devices"})),
    ("server", "delete"): _Command(_delete_server, (1, 1), flags=frozenset({"force"})),
    ("server", "list"): _Command(_list_servers, (0, 1), frozenset({"format"})),
    ("server", "set"): _Command(_set_server, (1, 1), LIMIT_OPTIONS),
    ("server", "get"): _Command(_get_server, (2, 2)),
    ("namespace", "create"): _Command(_create_namespace, (1, 1), frozenset({"server"})),
    ("namespace", "delete"): _Command(_delete_namespace, (1, 1), frozenset({"server"}), frozenset({"force"})),
    ("namespace", "list"): _Formatted(_list_namespaces, (0, 1)),
    ("namespace", "set"): _Command(_set_namespace, (1, 1), LIMIT_OPTIONS | {"server"}),
    ("namespace", "get"): _Command(_get_namespace, (3, 3)),
    ("client", "list"): _Formatted(_list_clients, (0, 0), flags=frozenset({"all"})),
    ("client", "get"): _Command(_get_client, (2, 2)),
    ("client", "terminate"): _Command(_terminate_client, (1, 1)),
}
