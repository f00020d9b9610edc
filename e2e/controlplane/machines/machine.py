"""
A machine of the cluster, from the outside: started, told what to run, asked, killed.

Owns a folder: `machine.json` says what the machine is, `services.json` what it runs, `init.json` which process it is,
`own/` holds its own files, `logs/` what its services say. All of it is on disk before it is so, and a machine without
its owner ends by itself, so nothing is left that this folder does not tell of. Neighbour: `boot` is the inside.
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

PACKAGES = Path(__file__).resolve().parents[2]
"""Where this package is found."""
FRUGAL = {"GOGC": "400"}
"""Environment of programs in Go that are to spend memory rather than time: a tenth less of the latter was measured."""

VOLATILE = ("/run", "/tmp")  # the machine's own
"""Folders every machine has of its own, empty at each boot."""

END_SECONDS = 20.0


class MachineError(Exception):
    """A machine did not start, or a command in it failed; the message holds what it said."""


@dataclass(frozen=True)
class Description:
    """What a machine is."""

    name: str
    cgroup: str
    """Its control group, `parent/name`."""
    programs: str
    """Folder of the programs that are looked for first."""
    kept: tuple[str, ...] = ()
    """Folders it has of its own besides those of `VOLATILE`, and keeps when its power is cut."""
    visible: tuple[str, ...] = ()
    """Folders of this machine it must see even where they lie below its own."""
    listen: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """Address of this machine's network, by name of the service that gets the listening socket as standard input."""

    @property
    def own(self) -> tuple[str, ...]:
        """Every folder it has of its own."""
        return (*VOLATILE, *self.kept)


@dataclass(frozen=True)
class Service:
    """One program a machine runs."""

    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


class Machine:
    """One machine below its folder, running or not."""

    def __init__(self, folder: Path, description: Description) -> None:
        self.folder = folder
        self.description = description
        self.name = description.name

    @property
    def pid(self) -> int | None:
        """Its first process, None if it is off."""
        try:
            pid, ticks = json.loads((self.folder / "init.json").read_text())
        except FileNotFoundError:
            return None
        living = start_ticks(pid)
        return pid if living is not None and living == ticks else None

    def living_pid(self) -> int:
        """Return its first process. Raises: MachineError with what it said last, when it is off."""
        pid = self.pid
        if pid is None:
            raise MachineError(f"{self.name} is off; it said last:\n{self.tail('boot')}")
        return pid

    def path(self, path: str) -> Path:
        """
        Return where this machine keeps the machine's own file *path*.

        Raises: ValueError when the machine has no file of its own there.
        """
        wanted = path.replace("/var/run/", "/run/", 1) if path.startswith("/var/run/") else path
        own = self.description.own
        if not any(wanted == folder or wanted.startswith(folder + "/") for folder in own):
            raise ValueError(f"{self.name} has no {path} of its own; its own are {', '.join(own)}")
        return self.folder / "own" / wanted.lstrip("/")

    def start(self) -> None:
        """Boot it if it is off; it ends with this process until `let_live`. Raises: MachineError."""
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
                env={**os.environ, **FRUGAL, "PYTHONPATH": str(PACKAGES)},
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
        """Say what it is to run, and have it start what is missing; what runs is left alone."""
        self._write("services.json", [asdict(service) for service in services])
        self._signal(signal.SIGHUP)

    def serve_again(self) -> None:
        """Have it start what it is to run and does not, and wait until that is started."""
        self._signal(signal.SIGHUP)
        _wait(lambda: None not in self.services().values(), f"every service of {self.name} is started")

    def kill_service(self, name: str) -> None:
        """Kill a service as a crash would; it stays away until told to run again."""
        pid = self.services()[name]
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            # Not only ended but reaped, or the first process would take it for running when told to start it.
            _wait(lambda: not Path(f"/proc/{pid}").exists(), f"{name} of {self.name} ends")

    def kill(self) -> None:
        """Cut its power: every process in it is gone when this returns."""
        self._signal(signal.SIGKILL)
        _wait(lambda: self.pid is None, f"{self.name} ends")
        (self.folder / "init.json").unlink(missing_ok=True)

    def retire(self) -> None:
        """Kill it, and leave its files but no machine."""
        self.kill()
        (self.folder / "machine.json").unlink()

    def remove(self) -> None:
        """Kill it and leave nothing of it."""
        self.kill()
        cgroups.remove(self.description.cgroup)
        shutil.rmtree(self.folder)

    def services(self) -> dict[str, int | None]:
        """Return the pid of each service it is to run, as this machine counts, None for one that does not run."""
        first = self.pid
        children = _read(f"/proc/{first}/task/{first}/children").split() if first else []
        running = {_read(f"/proc/{int(pid)}/cmdline"): int(pid) for pid in children}
        wanted = json.loads((self.folder / "services.json").read_text())
        return {
            service["name"]: running.get(b"".join(argument.encode() + b"\0" for argument in service["argv"]))
            for service in wanted
        }

    def run(self, argv: Sequence[str], content: IO[bytes] | None = None, timeout_seconds: float = 120.0) -> str:
        """Run a command in it, with *content* as its standard input; return what it wrote. Raises: MachineError."""
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
            raise MachineError(f"{self.name}: {' '.join(argv)} ended with {done.returncode}: {said}")
        return done.stdout.decode(errors="replace")

    def tail(self, service: str, lines: int = 15) -> str:
        """Return the last *lines* of a service's log; `boot` is that of the machine itself."""
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
    """Return what a file of /proc holds, nothing for a process that has ended."""
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
