"""
Processes of a cluster: each is started with a log, ended by pid, and found again after a crash.

Owns the `processes.json` of a folder, with pid, start time, arguments and environment of every process. By it a later
run ends what an earlier one left running, or takes its place, and never ends another process that has got the same pid.
Must never know what the processes do.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from minicluster.pids import start_ticks

TERMINATE_SECONDS = 10.0
EXECUTE_SECONDS = 10.0
"""The time limit for a process that was forked for a program to execute it."""
POLL_SECONDS = 0.01
_FLAGS, _ENVIRONMENT = 6, slice(47, 49)
"""
The places of a process's flags and of its environment's two ends in its `stat`, from its state on (proc(5)). The ends
are 0 until the program that is executed has an environment.
"""
_EXITING, _FORKED_ONLY = 0x04, 0x40
"""PF_EXITING and PF_FORKNOEXEC of linux/sched.h."""
_ENDING_WITH_US = ("setpriv", "--pdeathsig", "TERM", "--")
"""
A program of util-linux: the kernel ends the command after it (SIGTERM) with the thread that started it.

A `preexec_fn` would do the same between fork and exec. But gRPC and others have threads, and a fork may then find a
lock taken that nobody releases.
"""


@dataclass
class Process:
    """One process: its command, and its pid while it runs."""

    name: str
    argv: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    outlives_us: bool = False
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """
        Start it in a new session, and append its output to its log.

        Unless it outlives us, the kernel ends it (SIGTERM) when this thread ends.
        """
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                (*(() if self.outlives_us else _ENDING_WITH_US), *self.argv),
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its pid. It must have been started."""
        assert self.popen is not None, f"{self.name} was never started"
        return self.popen.pid

    @property
    def is_running(self) -> bool:
        """Whether it runs now."""
        return self.popen is not None and self.popen.poll() is None

    def kill(self) -> None:
        """Kill it (SIGKILL), and wait until it is gone."""
        self._end(signal.SIGKILL)

    def terminate(self) -> None:
        """End it with SIGTERM, and with SIGKILL after TERMINATE_SECONDS."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self.popen is None or self.popen.poll() is not None:
            return
        self.popen.send_signal(how)
        try:
            self.popen.wait(TERMINATE_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()

    def tail(self, lines: int = 15) -> str:
        """Return the last *lines* of its log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def environment(pid: int) -> dict[str, str]:
    """
    Return the environment that the program of a process was started with.

    A process that was forked for a program may be a moment from executing it, and one that executes it has no
    environment for a moment, so this waits: runc reports a container as started before.
    Raises: OSError if the process has ended, or executes nothing within EXECUTE_SECONDS.
    """
    deadline = time.monotonic() + EXECUTE_SECONDS
    while True:
        before = _stat(pid)
        raw = Path(f"/proc/{pid}/environ").read_bytes()
        after = _stat(pid)
        if not raw and after[_FLAGS] & _EXITING:
            raise ProcessLookupError(f"process {pid} has ended")
        is_of_one_program = before[_ENVIRONMENT] == after[_ENVIRONMENT] and after[_ENVIRONMENT.stop - 1]
        if is_of_one_program and not before[_FLAGS] & _FORKED_ONLY:
            return dict(entry.split("=", 1) for entry in raw.decode(errors="replace").split("\0") if "=" in entry)
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} has executed no program within {EXECUTE_SECONDS:g} s")
        time.sleep(POLL_SECONDS)


def _stat(pid: int) -> list[int]:
    """Return the fields of a process from its state on, which is 0. Raises: OSError if there is no such process."""
    _, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, fields)]


def commands_with(text: str) -> list[str]:
    """Return the command lines of all processes of this machine that contain *text*, with spaces between arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue  # the process has ended meanwhile
        if text in command:
            found.append(command)
    return found


class Supervisor:
    """The processes of one folder, in the order of their start. Unless they outlive us, they end with us."""

    def __init__(self, folder: Path, *, outlives_us: bool = False) -> None:
        self.folder = folder
        self.processes: dict[str, Process] = {}
        self._outlives_us = outlives_us

    @property
    def _ledger(self) -> Path:
        return self.folder / "processes.json"

    def start(self, name: str, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Process:
        """Start a process under *name*, also again after it ended."""
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        process = Process(name, tuple(argv), dict(environment or {}), logs / f"{name}.log", self._outlives_us)
        self.processes[name] = process
        self.restart(name)
        return process

    def restart(self, name: str) -> None:
        """Start *name* again with the same arguments."""
        self.processes[name].start()
        self._record()

    def stop(self) -> None:
        """End all processes, the last one first."""
        for process in reversed(self.processes.values()):
            process.terminate()
        self._ledger.unlink(missing_ok=True)

    def _record(self) -> None:
        living = {
            name: [process.pid, start_ticks(process.pid), process.argv, process.environment]
            for name, process in self.processes.items()
            if process.is_running
        }
        draft = self._ledger.with_suffix(".new")
        draft.write_text(json.dumps(living))
        draft.rename(self._ledger)


def stop_leftovers(folder: Path) -> list[str]:
    """
    End the processes that an earlier run left in *folder*, the last one first, and return their names.

    A pid that now belongs to another process is left alone, because its start time differs.
    """
    ledger = folder / "processes.json"
    if not ledger.exists():
        return []
    ended = []
    for name, (pid, ticks, *_) in reversed(json.loads(ledger.read_text()).items()):
        if start_ticks(pid) == ticks:
            _end(pid, ticks)
            ended.append(name)
    ledger.unlink()
    return ended


def take_over(folder: Path, name: str) -> tuple[list[str], dict[str, str]]:
    """
    Replace the process *name* of an earlier run in *folder* by this one, and end it if it runs.

    Returns its arguments and its added environment. Raises: LookupError if there is no such process.
    """
    ledger = folder / "processes.json"
    entries = json.loads(ledger.read_text()) if ledger.exists() else {}
    if name not in entries:
        raise LookupError(f"{folder} has no process {name}; it has {', '.join(entries) or 'none'}")
    pid, ticks, argv, environment = entries[name]
    if start_ticks(pid) == ticks:
        _end(pid, ticks)
    entries[name] = [os.getpid(), start_ticks(os.getpid()), argv, environment]
    ledger.write_text(json.dumps(entries))
    return argv, environment


def _end(pid: int, ticks: int) -> None:
    """End a process that is not a child of this one, with SIGTERM, and with SIGKILL after TERMINATE_SECONDS."""
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + TERMINATE_SECONDS
    while start_ticks(pid) == ticks and time.monotonic() < deadline:
        time.sleep(0.05)
    if start_ticks(pid) == ticks:
        os.kill(pid, signal.SIGKILL)
