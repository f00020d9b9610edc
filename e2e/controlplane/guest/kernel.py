"""
The outside of a guest: start its kernel in a machine, and run programs under that kernel.

User-mode Linux is an ordinary process, so a guest ends with its machine and needs no virtualisation. It has one
processor, the file tree of the machine (read-only), copies of the machine's private folders, and no network but
loopback. Owns the folder `guest` in that of the machine. A request to run a program is a file `<number>.job` in it. The
guest writes the output to `<number>.out`, and the exit status to `<number>.exit`. Neighbour: `boot` is the inside.
Source: https://docs.kernel.org/virt/uml/user_mode_linux_howto_v2.html.
"""

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from controlplane.machines.machine import Machine, MachineError, Service

PROGRAM = "linux.uml"
"""Of Debian's package user-mode-linux."""
CHANNEL = "guest"
MEMORY_MIB = 3072
BOOT_SECONDS = 120.0
RUN_SECONDS = 120.0
ENDED_SECONDS = 5.0
"""The time that the kernel may be missing before it counts as ended."""

POLL_SECONDS = 0.05
_SERVICE = "linux"


def runs_here() -> bool:
    """Return whether user-mode Linux runs on this processor."""
    return os.uname().machine == "x86_64"


@dataclass(frozen=True)
class Job:
    """A program that a guest runs or has run."""

    path: Path
    """Its file in the channel, without an ending."""

    @property
    def output(self) -> str:
        """What it has printed so far, with its errors."""
        found = self.path.with_suffix(".out")
        return found.read_text(errors="replace") if found.exists() else ""

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal, or None while it runs."""
        found = self.path.with_suffix(".exit")
        return int(found.read_text()) if found.exists() else None


class Guest:
    """A guest, in a machine that is used for nothing else."""

    def __init__(self, machine: Machine) -> None:
        """The folder of *machine* must be visible in it. Memory that the guest does not use is not taken."""
        self.machine = machine
        self._channel = machine.folder / CHANNEL
        self._numbers = itertools.count(1)

    def start(self) -> None:
        """Boot the kernel in the running machine, and wait until it takes jobs. Raises: MachineError."""
        self._channel.mkdir()
        description = self.machine.folder / "guest.json"
        given = self.machine.description
        described = {"name": given.name, "own": given.own, "visible": given.visible, "channel": str(self._channel)}
        description.write_text(json.dumps(described))
        self.machine.serve([Service(_SERVICE, self._command(description))])
        self.until((self._channel / "ready").exists, f"{self.machine.name} boots its kernel", BOOT_SECONDS)

    def spawn(self, argv: Sequence[str], environment: Mapping[str, str] | None = None) -> Job:
        """Start a program of the machine with *environment*."""
        path = f"{self.machine.description.programs}:/usr/sbin:/usr/bin:/sbin:/bin"
        asked = {"argv": [str(word) for word in argv], "environment": {"PATH": path, **(environment or {})}}
        job = Job(self._channel / str(next(self._numbers)))
        draft = job.path.with_suffix(".draft")
        draft.write_text(json.dumps(asked))
        draft.rename(job.path.with_suffix(".job"))
        return job

    def run(
        self, argv: Sequence[str], environment: Mapping[str, str] | None = None, timeout_seconds: float = RUN_SECONDS
    ) -> str:
        """Run a program, and return what it printed. Raises: MachineError, also if it fails."""
        job = self.spawn(argv, environment)
        self.until(lambda: job.status is not None, f"{self.machine.name}: {' '.join(argv)} ends", timeout_seconds)
        if job.status != 0:
            raise MachineError(f"{self.machine.name}: {' '.join(argv)} exited with {job.status}: {job.output.strip()}")
        return job.output

    def _command(self, description: Path) -> tuple[str, ...]:
        """Return the command line of the kernel. What follows `--` are the arguments of its first process."""
        return (
            *(PROGRAM, f"mem={MEMORY_MIB}M", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "uml_dir=/tmp"),
            *("con=null", "con0=fd:0,fd:1", f"init={sys.executable}"),
            *("--", "-m", "controlplane.guest.boot", str(description)),
        )

    def until(self, holds: Callable[[], bool], what: str, timeout_seconds: float = RUN_SECONDS) -> None:
        """Wait until *holds* returns true. Fails early if the kernel has ended. Raises: MachineError."""
        began = well = time.monotonic()
        while not holds():
            now = time.monotonic()
            if self.machine.services()[_SERVICE] is not None:
                well = now
            if now - began > timeout_seconds or now - well > ENDED_SECONDS:
                log = self.machine.tail(_SERVICE)
                raise MachineError(f"{what}: not after {now - began:.0f} s; the end of the kernel's log:\n{log}")
            time.sleep(POLL_SECONDS)
