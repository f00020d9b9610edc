"""
The container runtime: containers as real processes, each with a shim that outlives the kubelet.

Owns `pods/<uid>/<container>/<attempt>.*`: spec, log, and the shim's files about start and end. Applies CDI devices, and
stands for the NVIDIA container runtime. Must never decide whether a container should run. Neighbours: `shim` and
`isolation` run it, `cdi` edits it, `pods` starts it.
"""

import asyncio
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from minicluster.kubelet.podspec import ContainerError, User, container_id
from minicluster.kubelet.runtime import hooks, isolation
from minicluster.kubelet.runtime.cdi import CdiCache, CdiError, Edits
from minicluster.kubelet.runtime.groups import remove_group
from minicluster.kubelet.runtime.isolation import Mount
from minicluster.pids import start_ticks

IMPORT_ROOT = Path(__file__).resolve().parents[3]
"""The folder that holds the package `minicluster`."""
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
KILLED_CODE = 137
ADOPTION_SECONDS = 1.0
"""The time a just started shim may take to write its first file, when the kubelet restarts."""
KILL_SECONDS = 5.0
"""The time shims may take to reap killed processes."""

_SHIM = (
    *(sys.executable, "-S", "-E", "-c"),
    "import os, sys; from minicluster.kubelet.runtime.shim import main; os.chdir('/'); main(sys.argv[1])",
)
"""
The command of a shim. It runs in IMPORT_ROOT, which `-c` searches first, and without site-packages (`-S`), which would
double the time it takes to start.
"""


@dataclass(frozen=True)
class Wanted:
    """A container to start."""

    pod_uid: str
    name: str
    attempt: int
    argv: list[str]
    environment: dict[str, str]
    cwd: str
    mounts: list[Mount]
    cdi_devices: tuple[str, ...] = ()
    user: User = field(default_factory=User)


@dataclass(frozen=True)
class Exit:
    """The end of a container. Times are seconds since the epoch."""

    code: int
    finished_at: float
    reason: str
    message: str = ""


@dataclass(frozen=True)
class NvidiaRuntime:
    """What the NVIDIA container runtime adds to a container with devices."""

    driver_libraries: Path
    hardware: Path

    def apply(self, environment: dict[str, str]) -> None:
        """Add the driver to *environment* if NVIDIA_VISIBLE_DEVICES requests devices."""
        if environment.get("NVIDIA_VISIBLE_DEVICES", "") in {"", "void", "none"}:
            return
        others = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{self.driver_libraries}:{others}" if others else str(self.driver_libraries)
        environment["FAKE_DRIVER_DIR"] = str(self.hardware)


class RunningContainer:
    """An attempt of a container. It runs until `exit` is set."""

    def __init__(self, prefix: Path, attempt: int) -> None:
        self.attempt = attempt
        self.log = prefix.with_name(f"{attempt}.log")
        self.started_at = 0.0
        self.exit: Exit | None = None
        self._prefix = prefix
        self._pid: int | None = None
        self._ticks: int | None = None
        self._ended = asyncio.Event()
        self._shim: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        """Whether its program runs."""
        return self.exit is None

    async def wait(self) -> Exit:
        """Wait until it ends, and return how."""
        await self._ended.wait()
        assert self.exit is not None
        return self.exit

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its first process, if it runs."""
        if self._pid is not None:
            _signal(self._pid, self._ticks, number)

    async def stop(self, grace_seconds: float) -> Exit:
        """End it with SIGTERM, and with SIGKILL after *grace_seconds*."""
        if grace_seconds > 0 and self.is_running:
            self.signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_seconds):
                    return await self.wait()
        self.signal(signal.SIGKILL)
        return await self.wait()

    async def launch(self) -> None:
        """Start the shim, and return once the program runs or has failed to start."""
        command = [*_SHIM, f"{self._prefix}.spec.json"]
        with self.log.open("ab") as log:
            # Popen takes a millisecond here. asyncio would need a thread or a signal handler for each process.
            self._shim = subprocess.Popen(  # noqa: ASYNC220
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                cwd=IMPORT_ROOT,
            )
        assert self._shim.stdout is not None
        with self._shim.stdout as pipe:
            await _readable(pipe.fileno())
        if not self.take_up():
            self._lose("the container's shim ended before it started the container")

    def take_up(self) -> bool:
        """Read the shim's files, follow the shim if it runs, and return whether there were files."""
        run = _read(Path(f"{self._prefix}.run.json"))
        if run is not None:
            self.started_at, self._pid, self._ticks = run["started_at"], run["pid"], run["ticks"]
        elif _read(Path(f"{self._prefix}.exit.json")) is None:
            return False
        self._follow(None if run is None else (run["shim_pid"], run["shim_ticks"]))
        return True

    def _follow(self, shim: tuple[int, int] | None) -> None:
        """Call `_finish` once the *shim* (pid and start time) has ended."""
        if shim is None or start_ticks(shim[0]) != shim[1]:
            self._finish()
            return
        descriptor = os.pidfd_open(shim[0])
        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._finish()

        loop.add_reader(descriptor, ended)

    def _finish(self) -> None:
        if self._shim is not None:
            self._shim.wait()
        found = _read(Path(f"{self._prefix}.exit.json"))
        if found is None:
            self._lose("the container's shim was killed, and the container with it")
            return
        reason = found.get("reason") or ("Completed" if found["exit_code"] == 0 else "Error")
        self.started_at = self.started_at or found["finished_at"]
        self._end(Exit(found["exit_code"], found["finished_at"], reason, found.get("message", "")))

    def _lose(self, why: str) -> None:
        self.started_at = self.started_at or time.time()
        self._end(Exit(KILLED_CODE, time.time(), "ContainerStatusUnknown", why))

    def _end(self, found: Exit) -> None:
        for group in (_read(Path(f"{self._prefix}.spec.json")) or {}).get("groups", ()):
            remove_group(Path(group))
        self.exit = found
        self._ended.set()


class Runtime:
    """All containers below *root*/pods."""

    def __init__(
        self, root: Path, cdi: CdiCache, nvidia: NvidiaRuntime | None, kind: str, with_pid_namespace: bool = False
    ) -> None:
        self.cdi = cdi
        self.isolation = kind
        self._pods = root / "pods"
        self._nvidia = nvidia
        self._with_pid_namespace = with_pid_namespace

    def pod_directory(self, pod_uid: str) -> Path:
        """Return the folder of a Pod."""
        return self._pods / pod_uid

    def image_environment(self, hostname: str) -> dict[str, str]:
        """Return the variables of the image, which is this machine's root."""
        return {"PATH": os.environ.get("PATH", DEFAULT_PATH), "HOME": "/root", "HOSTNAME": hostname}

    async def start(self, wanted: Wanted) -> RunningContainer:
        """
        Create and start a container. If its program cannot be executed, it has ended when this returns.

        Raises: ContainerError if it cannot be created.
        """
        environment, mounts, edits = self._with_devices(wanted)
        if self._nvidia is not None:
            self._nvidia.apply(environment)
        directory = self.pod_directory(wanted.pod_uid) / wanted.name
        (directory / "root").mkdir(parents=True, exist_ok=True)
        _forget_attempts(directory, before=wanted.attempt - 1)
        prefix = directory / str(wanted.attempt)
        group = f"/kubepods/pod{wanted.pod_uid}/{container_id(wanted.pod_uid, wanted.name, wanted.attempt)}"
        made = [
            await asyncio.to_thread(hooks.limit, command, group, directory, environment) for command in edits.limits
        ]
        spec = {
            "argv": wanted.argv,
            "environment": environment,
            "cwd": wanted.cwd,
            "mounts": isolation.sort_mounts(mounts),
            "log": f"{prefix}.log",
            "scratch": str(directory / "root"),
            "isolation": self.isolation,
            "pid_namespace": self._with_pid_namespace,
            "groups": made,
            **self._user(wanted.user),
        }
        Path(f"{prefix}.spec.json").write_bytes(orjson.dumps(spec))
        _change_modes(edits.modes, mounts)
        container = RunningContainer(prefix, wanted.attempt)
        await container.launch()
        return container

    def _user(self, user: User) -> dict[str, Any]:
        """Return what the shim is told of *user*, and which folders it has to open to all users."""
        driver = [self._nvidia.driver_libraries, self._nvidia.hardware] if self._nvidia else []
        python = Path(sys.executable)
        return {
            "uid": user.uid,
            "gid": _group_of(user.uid) if user.gid is None else user.gid,
            "no_new_privileges": not user.may_gain_privileges,
            "closed": _closed_folders([python, python.resolve(), *driver]) if user.uid else [],
        }

    def _with_devices(self, wanted: Wanted) -> tuple[dict[str, str], list[Mount], Edits]:
        """Return environment and mounts of *wanted* with those of its CDI devices, which win, and their edits."""
        try:
            edits = self.cdi.inject(wanted.cdi_devices)
        except CdiError as error:
            raise ContainerError("CreateContainerError", str(error)) from error
        for _, source, _ in isolation.without_memory(wanted.mounts):
            if not os.path.lexists(source):  # containerd makes a directory of a missing source
                Path(source).mkdir(parents=True)
        places = {destination for destination, _, _ in edits.mounts}
        kept = [mount for mount in wanted.mounts if mount[0] not in places]
        return wanted.environment | dict(edits.environment), [*kept, *edits.mounts], edits

    async def adopt(self) -> AsyncIterator[tuple[str, str, list[RunningContainer]]]:
        """Yield Pod UID, container name and all attempts, oldest first, of containers of an earlier kubelet."""
        for directory in sorted(self._pods.glob("*/*")):
            attempts = [
                container
                for attempt in _attempts(directory)
                if await _adopted(container := RunningContainer(directory / str(attempt), attempt))
            ]
            if attempts:
                yield directory.parent.name, directory.name, attempts

    def log_of(self, pod_uid: str, name: str, is_previous: bool) -> Path | None:
        """Return the log of a container's newest or previous attempt, or None if there is none."""
        attempts = _attempts(self.pod_directory(pod_uid) / name)
        position = -2 if is_previous else -1
        if len(attempts) < -position:
            return None
        return self.pod_directory(pod_uid) / name / f"{attempts[position]}.log"

    def pods_on_disk(self) -> list[str]:
        """Return the UIDs of all Pods with a folder."""
        return [path.name for path in self._pods.iterdir()] if self._pods.exists() else []

    def remove_pod(self, pod_uid: str) -> None:
        """Delete the folder of a Pod whose containers have ended."""
        shutil.rmtree(self.pod_directory(pod_uid), ignore_errors=True)


def kill_all(root: Path) -> None:
    """Kill every container below the kubelet root *root*, and wait until the shims are gone. Needs no kubelet."""
    found = [_read(path) for path in (root / "pods").glob("*/*/*.run.json")]
    runs = [run for run in found if run is not None]
    for run in runs:
        _signal(run["pid"], run["ticks"], signal.SIGKILL)
    deadline = time.monotonic() + KILL_SECONDS
    while any(start_ticks(run["shim_pid"]) == run["shim_ticks"] for run in runs) and time.monotonic() < deadline:
        time.sleep(0.02)


def choose_isolation(wanted: str, with_pid_namespace: bool) -> tuple[str, str]:
    """
    Return the kind of isolation for *wanted* (`auto`, `namespaces` or `mapping`), and why a better one does not work.

    Raises: ValueError if *wanted* does not work here.
    """
    candidates = {
        "auto": (isolation.MOUNT, isolation.USER, isolation.MAPPING),
        "namespaces": (isolation.MOUNT, isolation.USER),
        "mapping": (isolation.MAPPING,),
    }[wanted]
    problems: list[str] = []
    for kind in candidates:
        problem = isolation.probe(kind, with_pid_namespace)
        if problem is None:
            return kind, "; ".join(problems)
        problems.append(f"{kind}: {problem}")
    raise ValueError(f"--isolation {wanted} does not work here: {'; '.join(problems)}")


def _signal(pid: int, ticks: int | None, number: signal.Signals) -> None:
    """Send a signal to the process that started at *ticks*, and never to a later one with its pid."""
    if start_ticks(pid) == ticks:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


async def _adopted(container: RunningContainer) -> bool:
    deadline = time.monotonic() + ADOPTION_SECONDS
    while not container.take_up():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.02)
    return True


def _group_of(uid: int) -> int:
    """Return the group of a user of the image; that of root for a user whom it does not know, like containerd."""
    try:
        return pwd.getpwuid(uid).pw_gid
    except KeyError:
        return 0


def _closed_folders(paths: Iterable[Path]) -> list[str]:
    """Return the folders above *paths* that other users may not enter, outermost first."""
    above = {parent for path in paths for parent in path.parents}
    return sorted(str(folder) for folder in above if folder.exists() and ~folder.stat().st_mode & isolation.OPEN_TO_ALL)


def _change_modes(modes: Iterable[tuple[str, int]], mounts: list[Mount]) -> None:
    """Set the *modes* of paths in the container that are mounted. Any other path would be the machine's own."""
    mounted = isolation.without_memory(mounts)
    for path, mode in modes:
        host = Path(isolation.map_path(path, mounted))
        if str(host) != path and host.exists():
            host.chmod(mode)


def _attempts(directory: Path) -> list[int]:
    return sorted(int(path.name.split(".")[0]) for path in directory.glob("*.spec.json"))


def _forget_attempts(directory: Path, before: int) -> None:
    for attempt in _attempts(directory):
        if attempt < before:
            for path in directory.glob(f"{attempt}.*"):
                path.unlink(missing_ok=True)


async def _readable(descriptor: int) -> None:
    """Wait until *descriptor* has data or is at its end."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = orjson.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return content
