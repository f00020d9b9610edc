"""
A machine with a driver that is asked: its processes, cgroups, MPS and compute mode, all put back afterwards.

The real machine and the fake one differ only in how a process is started and who has the cgroups. Nothing here resets a
device, switches MIG, or touches what it has not made.
"""

import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from containers import Container
from hardware.process import Process

from testbed.driver.hardware import StandInCgroups
from testbed.driver.mps import CONTROL, MpsControl, mps_control

SECONDS: Final = 60.0
"""How long a program may take to answer."""
NAMESPACED: Final = 615
"""The first driver with limits on the memory of a cgroup and with protocol 3 of MPS."""
DMEM, MISC = "dmem", "misc"
_EXCLUSIVE: Final = 3
IN_NAMESPACES: Final = ("unshare", "--user", "--map-root-user")
"""What makes other namespaces: the user namespace makes them possible without root."""


class NotTriedError(Exception):
    """A question cannot be asked here; the message says what is missing."""


class HangError(Exception):
    """A program has not answered in time."""


class Groups(ABC):
    """The cgroups of a host, of which a question makes some."""

    controller: str
    """What limits memory: dmem or misc."""

    @abstractmethod
    def create(self, path: str, *, runtime: str = "runc") -> Path:
        """Make the cgroup *path*, such as `/pod/c1`, as the container *runtime* does, and return its folder."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove the cgroup *path*, in which no process is."""

    @abstractmethod
    def variables(self, path: str) -> Mapping[str, str]:
        """Return the variables of a process that is to be in the cgroup *path*."""

    @abstractmethod
    def enter(self, path: str, pid: int) -> None:
        """Move a process there that has its variables, before it opens the driver."""


class Host:
    """One machine. Use it within `restored`."""

    def __init__(
        self, environment: Mapping[str, str], groups: Groups | None, mps: Path | None, why_not: str = ""
    ) -> None:
        """
        Start processes with *environment*, ask about *groups*, and start the daemon *mps*.

        *why_not* says what is missing if there are no groups or no daemon.
        """
        self._environment = dict(environment)
        self._groups, self._mps, self._why_not = groups, mps, why_not
        self._restoring = ExitStack()

    def with_variables(self, **variables: str) -> "Host":
        """Return it with more variables for each process."""
        return Host(self._environment | variables, self._groups, self._mps, self._why_not)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Put back everything that is changed during the block, and end every process."""
        with ExitStack() as self._restoring:
            yield

    def at_the_end(self, undo: Callable[[], object]) -> None:
        """Call *undo* when everything is put back, before what was changed earlier."""
        self._restoring.callback(undo)

    # --- processes -------------------------------------------------------------------------------------------------

    def process(self, group: str = "", prefix: Sequence[str] = (), **variables: str) -> Process:
        """Start a process in the cgroup *group*, by the command *prefix*."""
        placed = self.groups.variables(group) if group else {}
        started = Process.with_environment(self._environment | dict(placed) | variables, tuple(prefix))
        self._restoring.callback(started.kill)
        if group:
            self.groups.enter(group, started.process.pid)
        return started

    def root(self, group: str = "") -> Process:
        """Start a process that has opened NVML."""
        started = self.process(group)
        assert self.ask(started, "n.nvmlInit()") is None
        return started

    @staticmethod
    def ask(process: Process, expression: str, seconds: float = SECONDS) -> Any:
        """Return the value of *expression* in *process*. Raises: HangError."""
        process.send(expression)
        return Host.answer(process, seconds)

    @staticmethod
    def answer(process: Process, seconds: float = SECONDS) -> Any:
        """Return the value of what was sent. Raises: HangError."""
        if not process.has_answered(seconds):
            raise HangError
        return process.answer()

    # --- memory ----------------------------------------------------------------------------------------------------

    @property
    def groups(self) -> Groups:
        """Its cgroups. Raises: NotTriedError."""
        if self._groups is None:
            raise NotTriedError(self._why_not)
        return self._groups

    def group(self, path: str, *, runtime: str = "runc") -> Path:
        """Make a cgroup, which is removed at the end, and return its folder."""
        folder = self.groups.create(path, runtime=runtime)
        self._restoring.callback(self._remove, path)
        return folder

    def _remove(self, path: str) -> None:
        with suppress(OSError):
            self.groups.remove(path)

    # --- compute ---------------------------------------------------------------------------------------------------

    def daemon(self) -> MpsControl:
        """Start MPS's daemon with protocol 3 and a server `s`, which end at the end. Raises: NotTriedError."""
        if self._mps is None:
            raise NotTriedError(self._why_not)
        control = self._restoring.enter_context(mps_control(self._mps, **self._environment))
        self.start(control)
        return control

    @staticmethod
    def start(control: MpsControl) -> None:
        """Start the daemon of *control* with a server `s`."""
        control.start()
        control.ask("server", "create", "s")
        until(lambda: control.ask("server", "get", "s", "status") == "Ready")

    def exclusive(self) -> None:
        """Let one process alone use the first device, until the end. Raises: NotTriedError if others compute on it."""
        root = self.root()
        servers = ("nvidia-cuda-mps-server", "nvidia-cuda-mps")
        strangers = [pid for pid, _ in self.ask(root, "listed('Compute')") if _name(pid) not in servers]
        if strangers:
            raise NotTriedError(f"process {strangers[0]} computes on the device")
        before = self.ask(root, "compute_mode()")
        refused = self.ask(root, f"set_compute_mode({_EXCLUSIVE})")
        if refused is not None:
            raise NotTriedError(f"the compute mode cannot be set: NVML's error {refused['error']}")
        self._restoring.callback(self.ask, self.root(), f"set_compute_mode({before})")

    def client(self, control: MpsControl, namespace: str, **variables: str) -> Process:
        """Start a client of a namespace of the server `s`, with a context."""
        pipe = {"CUDA_MPS_PIPE_DIRECTORY": str(control.pipe / "s" / namespace)}
        started = self.process(**(pipe | variables))
        if self.ask(started, "join()") != [0, 0]:
            raise NotTriedError(f"a client of the namespace {namespace} cannot start")
        return started


def _name(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def until(is_so: Callable[[], bool]) -> None:
    """Wait until something is so. Raises: HangError."""
    deadline = time.monotonic() + SECONDS
    while not is_so():
        if time.monotonic() > deadline:
            raise HangError
        time.sleep(0.05)


# --- the real machine ------------------------------------------------------------------------------------------------


class RealGroups(Groups):
    """Cgroups of version 2, below one of our own."""

    def __init__(self, controller: str, root: Path = Path("/sys/fs/cgroup")) -> None:
        self.controller = controller
        self._root, self._own = root, root / f"hami-questions-{os.getpid()}"

    def create(self, path: str, *, runtime: str = "runc") -> Path:
        """Make it, and enable the controller for it; crun does not enable dmem."""
        folder, parts = self._own, path.strip("/").split("/")
        _enable(self._root, self.controller)
        folder.mkdir(exist_ok=True)
        for part in parts:
            if part != parts[-1] or runtime != "crun" or self.controller != DMEM:
                _enable(folder, self.controller)
            folder /= part
            folder.mkdir(exist_ok=True)
        return folder

    def remove(self, path: str) -> None:
        """Remove it, and those above it that are empty, up to our own."""
        folder = self._own / path.strip("/")
        folder.rmdir()
        for above in folder.parents:
            if above == self._root:
                return
            with suppress(OSError):
                above.rmdir()

    def variables(self, path: str) -> Mapping[str, str]:
        """Return none: the process is moved."""
        return {}

    def enter(self, path: str, pid: int) -> None:
        """Write its pid."""
        (self._own / path.strip("/") / "cgroup.procs").write_text(str(pid))


def _enable(folder: Path, controller: str) -> None:
    (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def real_host(major: int) -> Host:
    """Return this machine, whose driver's version begins with *major*."""
    if major < NAMESPACED:
        return Host(os.environ, None, None, f"the driver is r{major}; limits and namespaces need r{NAMESPACED}")
    if os.geteuid() != 0:
        return Host(os.environ, None, None, "needs root")
    program = shutil.which(CONTROL)
    controller = _controller()
    missing = [CONTROL] if program is None else []
    missing += ["a cgroup controller dmem or misc of version 2"] if not controller else []
    groups = RealGroups(controller) if controller else None
    return Host(os.environ, groups, Path(program) if program else None, f"this machine lacks {' and '.join(missing)}")


def _controller() -> str:
    """Return what limits memory on this machine, empty if nothing can."""
    root = Path("/sys/fs/cgroup")
    if not (root / "cgroup.controllers").exists():
        return ""
    capacity = root / "dmem.capacity"
    if capacity.exists() and "nvidia/" in capacity.read_text():
        return DMEM
    return MISC if MISC in (root / "cgroup.controllers").read_text().split() else ""


def major_version(version: str) -> int:
    """Return the branch of a driver's version: 615 of `615.43.02`."""
    return int(version.partition(".")[0])


# --- the fake one ----------------------------------------------------------------------------------------------------


class FakeGroups(Groups):
    """A folder that stands for cgroups of version 2."""

    def __init__(self, controller: str, cgroups: StandInCgroups) -> None:
        self.controller, self._cgroups = controller, cgroups

    def create(self, path: str, *, runtime: str = "runc") -> Path:
        """Make the folder."""
        return self._cgroups.create(path, runtime=runtime)

    def remove(self, path: str) -> None:
        """Remove the folder."""
        self._cgroups.remove(path)

    def variables(self, path: str) -> Mapping[str, str]:
        """Return what tells the fake driver where a process is."""
        return self._cgroups.variables(path)

    def enter(self, path: str, pid: int) -> None:
        """Do nothing: its variables have placed it."""


def fake_host(container: Container, controller: str, folder: Path) -> Host:
    """Return the node of *container*, whose driver is loaded, with *controller*; its cgroups are below *folder*."""
    devices = container.folder / "hardware/devices.csv" if controller == DMEM else None
    cgroups = StandInCgroups(folder, devices)
    environment = container.environ(preload=False) | cgroups.variables("/") | {"FAKE_DRIVER_CONTEXT_MIB": "100"}
    return Host(environment, FakeGroups(controller, cgroups), container.build / "fake_driver" / CONTROL)
