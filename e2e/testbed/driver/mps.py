"""
The stand-in of NVIDIA's MPS: its programs in a driver's root, and its control daemon.

Owns how a test starts and asks the daemon. What it answers, and what its clients get, is described in
native/hami-core/tests/fake_driver/README.md.
"""

import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PROGRAMS = (CONTROL, "nvidia-cuda-mps-server")
COMMAND_SECONDS = 120.0
"""How long a command may take. Some wait for the work of clients."""
BINARIES = "usr/bin"
"""Where a driver's root has its programs."""


def install_mps(root: Path, fake_driver: Path, hardware: Path | None = None) -> Path:
    """
    Copy the programs from the folder *fake_driver* into a driver's root. Return the path of the control program.

    They find *hardware* by themselves, as real ones do. It is its path in the driver's root.
    """
    folder = root / BINARIES
    folder.mkdir(parents=True, exist_ok=True)
    for name in PROGRAMS:
        shutil.copy2(fake_driver / name, folder / name)
    program = folder / CONTROL
    if hardware:
        program.rename(program.with_suffix(".real"))
        program.write_text(f'#!/bin/sh\nFAKE_DRIVER_DIR={hardware} exec "$0.real" "$@"\n')
        program.chmod(0o755)
    return program


def daemon_pid(pipes: Path) -> int:
    """
    Return the pid, on this machine, of the daemon that accepts connections in the folder *pipes*.

    Raises: OSError if none does.
    """
    # Through a descriptor, because the path of a socket has at most 107 characters.
    folder = os.open(pipes, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(f"/proc/self/fd/{folder}/control")
            return int(struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0])
    finally:
        os.close(folder)


class MpsCommandError(Exception):
    """A command failed. The message is what the program printed."""


@dataclass(frozen=True)
class MpsControl:
    """A control daemon, which may run or not, and the commands for it."""

    program: Path
    folder: Path
    """It has the folders of pipes and logs. A socket's path has at most 107 characters, so this one is short."""
    environment: dict[str, str] = field(default_factory=dict)
    pipe_name: str = "pipe"
    """The name of the folder of pipes."""

    @property
    def pipe(self) -> Path:
        """The folder of pipes."""
        return self.folder / self.pipe_name

    @property
    def log(self) -> Path:
        """The folder of logs."""
        return self.folder / "log"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of the program."""
        folders = {"CUDA_MPS_PIPE_DIRECTORY": str(self.pipe), "CUDA_MPS_LOG_DIRECTORY": str(self.log)}
        return os.environ | self.environment | folders

    @property
    def pid(self) -> int:
        """The pid of the daemon that accepts connections."""
        return daemon_pid(self.pipe)

    def start(self, *options: str) -> str:
        """Start the daemon with protocol 3 in the background, and return what it says. *options*: `-m`, `-a FILE`."""
        return self.ask("-d", "-p", "3", *options)

    def run(self, *words: str, commands: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run the program with the arguments *words*, or with *commands* on stdin, a line each."""
        return subprocess.run(
            [self.program, *words],
            env=self.variables | variables,
            input=commands,
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )

    def ask(self, *words: str) -> str:
        """
        Return the answer of a command.

        Raises:
            MpsCommandError: it failed.
        """
        done = self.run(*words)
        if done.returncode != 0:
            raise MpsCommandError((done.stdout + done.stderr).strip())
        return done.stdout.strip()

    def rows(self, *words: str) -> list[list[str]]:
        """Return the rows of a list, `server list` for example."""
        return [line.split(",") for line in self.ask(*words, "--format=csv,noheader").splitlines()]

    def add_namespace(self, server: str, name: str, percentage: int | None = None) -> Path:
        """Create a namespace, and return the folder for its clients."""
        self.ask("namespace", "create", name, f"--server={server}")
        if percentage is not None:
            self.ask("namespace", "set", name, f"--server={server}", f"--active-thread-percentage={percentage}")
        return Path(self.ask("namespace", "get", name, server, "pipe-directory"))


@contextmanager
def mps_control(program: Path, **environment: str) -> Iterator[MpsControl]:
    """Yield the commands of a daemon with folders of its own. It is stopped at the end, if need be killed."""
    with tempfile.TemporaryDirectory(prefix="mps-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        control = MpsControl(program, Path(folder), environment)
        try:
            yield control
        finally:
            try:
                control.run("quit")
            except subprocess.TimeoutExpired:
                os.kill(control.pid, signal.SIGKILL)


@contextmanager
def driver_root(folder: Path, fake_driver: Path, hardware: Path) -> Iterator[Path]:
    """
    Yield a driver's root that one can change to, as a driver's container has it: this machine's files, and the programs
    of MPS on the node of *hardware*. Needs root.
    """
    with ExitStack() as mounts:

        def mount(*words: str, on: Path) -> None:
            on.mkdir(parents=True, exist_ok=True)
            subprocess.run(["mount", *words, str(on)], check=True)
            mounts.callback(subprocess.run, ["umount", "--recursive", "--lazy", str(on)], check=True)

        # What covers a file system may not lie in it.
        mount("-t", "tmpfs", "tmpfs", on=folder / "changes")
        upper, work = folder / "changes/upper", folder / "changes/work"
        for made in (upper, work):
            made.mkdir()
        root = folder / "driver-root"
        mount("-t", "overlay", "overlay", "-o", f"lowerdir=/,upperdir={upper},workdir={work}", on=root)
        # Without the mounts in them, which are others'.
        for shared in ("proc", "dev", "tmp"):
            mount("--bind", "--make-private", f"/{shared}", on=root / shared)
        install_mps(root, fake_driver, hardware)
        yield root
