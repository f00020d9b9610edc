"""
The first process of a machine: `python -m controlplane.machines.boot MACHINE.json OWNER`.

A machine has its own namespaces of processes, mounts, network, host name, IPC and control groups. When this process
ends, the kernel kills all processes of the machine, and removes its mounts, interfaces and rules. It ends with OWNER (a
pid), unless it gets SIGUSR1. It runs the services in `services.json` beside MACHINE.json. On SIGHUP it starts the
missing ones. It never restarts a service by itself. Must never know what the services are for.

MACHINE.json has the fields of `machine.Description`. Neighbours: `filetree` makes the machine's root, `machine` is the
outside.
"""

import json
import os
import select
import signal
import socket
import sys
from pathlib import Path

from controlplane.machines import cgroups, filetree, linux
from minicluster.pids import start_ticks

CHECK_OWNER_SECONDS = 0.5
_SIGNALS = {signal.SIGCHLD, signal.SIGHUP, signal.SIGTERM, signal.SIGUSR1}


def main(description: Path, owner: int) -> int:
    """Make the namespaces, start the first process in them, write its pid to `init.json`, and return once it is up."""
    machine = json.loads(description.read_text())
    folder = description.parent
    owner_handle = os.pidfd_open(owner)
    sockets = _listen(machine["listen"])
    # An empty group of an earlier boot delegates controllers, so that no process can enter it.
    cgroups.remove(machine["cgroup"])
    cgroups.create(machine["cgroup"])
    cgroups.enter(machine["cgroup"])
    linux.unshare(
        linux.CLONE_NEWPID | linux.CLONE_NEWNET | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC | linux.CLONE_NEWCGROUP
    )
    cgroups.step_aside(machine["cgroup"])
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        First(machine, folder, owner_handle, sockets).run(writer)
    os.close(writer)
    if os.read(reader, 1) != b"+":
        return 1
    draft = folder / "init.json.new"
    draft.write_text(json.dumps([pid, start_ticks(pid)]))
    draft.rename(folder / "init.json")
    return 0


def _listen(addresses: dict[str, list[str | int]]) -> dict[str, socket.socket]:
    """Return a listening socket for each name, in the present network namespace."""
    return {name: socket.create_server((str(host), int(port))) for name, (host, port) in addresses.items()}


class First:
    """Process 1 of a machine."""

    def __init__(self, machine: dict[str, object], folder: Path, owner: int, sockets: dict[str, socket.socket]) -> None:
        self._machine = machine
        self._folder = folder
        self._owner: int | None = owner
        self._sockets = sockets
        self._running: dict[int, str] = {}

    def run(self, ready: int) -> None:
        """Boot, write to *ready*, and serve until the machine ends. Never returns."""
        try:
            os.setsid()
            signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
            socket.sethostname(str(self._machine["name"]))
            linux.unshare(linux.CLONE_NEWNS)
            filetree.enter(self._machine, self._folder)
            os.write(ready, b"+")
            os.close(ready)
            self._serve()
        except BaseException as error:
            print(f"boot of {self._machine['name']}: {type(error).__name__}: {error}", flush=True)
            os._exit(1)
        os._exit(0)

    def _serve(self) -> None:
        while self._owner is None or not select.select([self._owner], [], [], 0)[0]:
            received = signal.sigtimedwait(_SIGNALS, CHECK_OWNER_SECONDS)
            number = received.si_signo if received else None
            if number == signal.SIGTERM:
                return
            if number == signal.SIGUSR1:
                self._owner = None
            if number == signal.SIGHUP:
                self._start_missing()
            self._reap()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._running:
                print(f"{self._running.pop(pid)} ended: {os.waitstatus_to_exitcode(status)}", flush=True)

    def _start_missing(self) -> None:
        self._reap()
        for service in json.loads((self._folder / "services.json").read_text()):
            if service["name"] not in self._running.values():
                self._running[self._spawn(**service)] = service["name"]

    def _spawn(self, name: str, argv: list[str], environment: dict[str, str]) -> int:
        """Start a service. If a socket has its name, it is the standard input."""
        log = self._folder / "logs" / f"{name}.log"
        listening = self._sockets.get(name)
        return os.posix_spawnp(
            argv[0],
            argv,
            {**os.environ, **environment},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, listening.fileno(), 0)
                if listening
                else (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
                (os.POSIX_SPAWN_DUP2, 1, 2),
            ],
            setsid=True,
            setsigmask=[],
        )


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
