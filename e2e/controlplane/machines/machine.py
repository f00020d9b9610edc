"""
The outside of a machine: start it, run services and commands in it, kill it.

Owns a folder: `machine.json` describes the machine, `services.json` lists its services, `init.json` has its first
process, `own/` its private files, `logs/` the logs of its services. Each file is written before it takes effect, and a
machine ends with its owner, so the folder lists everything that can be left. Neighbour: `boot` is the inside.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

from controlplane.machines import cgroups
from minicluster.pids import start_ticks

FRUGAL = {"GOGC": "400"}
"""Environment of Go programs. They use more memory, and a tenth less processor time, as measured."""

VOLATILE = ("/run", "/tmp")  # of the machine, not of this one
"""Private folders of every machine, empty after each boot."""

END_SECONDS = 20.0


class MachineError(Exception):
    """A machine did not start, or a command in it failed. The message has the output."""


@dataclass(frozen=True)
class Description:
    """The properties of a machine."""

    name: str
    cgroup: str
    """Its control group, `parent/name`."""
    programs: str
    """The first folder of its PATH."""
    kept: tuple[str, ...] = ()
    """Private folders that survive a power cut, beside those of `VOLATILE`, which do not."""
    visible: tuple[str, ...] = ()
    """Folders of this machine that stay visible below private ones."""
    listen: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Addresses in this machine's network, by the service that gets the listening socket as standard input."""

    @property
    def own(self) -> tuple[str, ...]:
        """All private folders."""
        return (*VOLATILE, *self.kept)


@dataclass(frozen=True)
class Service:
    """One program of a machine."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class Machine:
    """A machine, running or off, below its folder."""

    def __init__(self, folder: Path, description: Description) -> None:
        self.folder = folder
        self.description = description
        self.name = description.name

    @property
    def pid(self) -> int | None:
        """The pid of its first process, or None if it is off."""
        try:
            pid, ticks = json.loads((self.folder / "init.json").read_text())
        except FileNotFoundError:
            return None
        living = start_ticks(pid)
        return pid if living is not None and living == ticks else None

    def living_pid(self) -> int:
        """Return the pid of its first process. Raises: MachineError with the end of its log if it is off."""
        pid = self.pid
        if pid is None:
            raise MachineError(f"{self.name} is off; the end of its log:\n{self.tail('boot')}")
        return pid

    def path(self, path: str) -> Path:
        """
        Return the path on this machine of the private file *path*.

        Raises: ValueError if *path* is not in a private folder.
        """
        wanted = path.replace("/var/run/", "/run/", 1) if path.startswith("/var/run/") else path
        own = self.description.own
        if not any(wanted == folder or wanted.startswith(folder + "/") for folder in own):
            raise ValueError(f"{path} is not in a private folder of {self.name}; these are {', '.join(own)}")
        return self.folder / "own" / wanted.lstrip("/")

    def start(self) -> None:
        """Boot it if it is off. It ends with this process until `let_live`. Raises: MachineError."""
        if self.pid is not None:
            return
        for path in VOLATILE:
            shutil.rmtree(self.path(path), ignore_errors=True)
            self.path(path).mkdir(parents=True)
        self.path("/tmp").chmod(0o1777)
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        self._write("machine.json", {**asdict(self.description), "own": self.description.own})
        self._write("services.json", [])
        argv = [sys.executable, "-m", "controlplane.machines.boot", str(self.folder / "machine.json"), str(os.getpid())]
        with (logs / "boot.log").open("ab") as log:
            done = subprocess.run(
                argv,
                env={**os.environ, **FRUGAL},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                check=False,
            )
        if done.returncode != 0:
            raise MachineError(f"{self.name} did not boot:\n{self.tail('boot')}")

    def let_live(self) -> None:
        """Let it outlive this process."""
        self._signal(signal.SIGUSR1)

    def serve(self, services: Sequence[Service]) -> None:
        """Set its services, and start the missing ones."""
        self._write("services.json", [asdict(service) for service in services])
        self._signal(signal.SIGHUP)

    def serve_again(self) -> None:
        """Start the services that have ended, and wait until they run."""
        self._signal(signal.SIGHUP)
        _wait(lambda: None not in self.services().values(), f"every service of {self.name} is started")

    def kill_service(self, name: str) -> None:
        """Kill a service. It is not restarted until `serve` or `serve_again`."""
        pid = self.services()[name]
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            # Wait until it is reaped, because the first process considers it running until then.
            _wait(lambda: not Path(f"/proc/{pid}").exists(), f"{name} of {self.name} ends")

    def kill(self) -> None:
        """Kill all its processes, like a power cut, and wait until they are gone."""
        self._signal(signal.SIGKILL)
        _wait(lambda: self.pid is None, f"{self.name} ends")
        (self.folder / "init.json").unlink(missing_ok=True)

    def retire(self) -> None:
        """Kill it, and remove the machine but not its files."""
        self.kill()
        (self.folder / "machine.json").unlink()

    def remove(self) -> None:
        """Kill it, and remove it with its files."""
        self.kill()
        cgroups.remove(self.description.cgroup)
        shutil.rmtree(self.folder)

    def services(self) -> dict[str, int | None]:
        """Return the pid on this machine of each service, or None if it does not run."""
        first = self.pid
        children = _read(f"/proc/{first}/task/{first}/children").split() if first else []
        running = {_read(f"/proc/{int(pid)}/cmdline"): int(pid) for pid in children}
        wanted = json.loads((self.folder / "services.json").read_text())
        return {
            service["name"]: running.get(b"".join(argument.encode() + b"\0" for argument in service["argv"]))
            for service in wanted
        }

    def run(self, argv: Sequence[str], content: IO[bytes] | None = None, timeout_seconds: float = 120.0) -> str:
        """Run a command in it with *content* as standard input, and return its output. Raises: MachineError."""
        first = self.pid
        if first is None:
            raise MachineError(f"{self.name} is off")
        done = subprocess.run(
            ["nsenter", f"--target={first}", "--all", *argv],
            stdin=content or subprocess.DEVNULL,
            env={**os.environ, "PATH": f"{self.description.programs}:{os.environ.get('PATH', os.defpath)}"},
            capture_output=True,
            check=False,
            timeout=timeout_seconds,
        )
        if done.returncode != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise MachineError(f"{self.name}: {' '.join(argv)} exited with {done.returncode}: {said}")
        return done.stdout.decode(errors="replace")

    def tail(self, service: str, lines: int = 15) -> str:
        """Return the last *lines* of a service's log. `boot` is the log of the machine."""
        log = self.folder / "logs" / f"{service}.log"
        if not log.exists():
            return "(no log)"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        first = self.pid
        if first is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(first, number)

    def _write(self, name: str, content: object) -> None:
        draft = self.folder / f"{name}.new"
        draft.write_text(json.dumps(content))
        draft.rename(self.folder / name)


def _wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + END_SECONDS
    while not holds():
        if time.monotonic() > deadline:
            raise MachineError(f"{what}: not within {END_SECONDS:g} s")
        time.sleep(0.01)


def _read(path: str) -> bytes:
    """Return the content of a file of /proc, or nothing if the process has ended."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
