"""
The control daemon of MPS, protocol 3: start it, and keep a namespace for each container.

A namespace is a folder with a socket. Whoever connects there may use its percentage of the multiprocessors, and only
root may change that. The daemon runs in the driver's root, in a cgroup of its own: it must outlive this process.
Source: https://docs.nvidia.com/deploy/mps/appendix-tools-and-interface-reference.html
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from hami_device_plugin.adapters.files import SCRATCH
from hami_device_plugin.adapters.mps import in_driver_root, occupy
from hami_device_plugin.adapters.mps.daemon import connection_problem
from hami_device_plugin.decide.allocate.container_limits import NO_LIMIT_PERCENT
from hami_device_plugin.decide.probe.enforcement import MpsServer
from hamicommon.errors import HamiError
from hamicommon.runtime.host.nvml import library_below

PROGRAM = "/usr/bin/nvidia-cuda-mps-control"
PROTOCOL = "3"
LIBCUDA = "libcuda.so.1"
DEADLINE_SECONDS = 30.0
"""A server initialises each GPU, which takes seconds without persistence mode."""
START_SECONDS = 5.0
POLL_SECONDS = 0.05
OUTPUT_BYTES_MAX = 1 << 20
_GROUP = "hami-mps"
_LOGS = "/log"


class MpsControlError(HamiError):
    """The daemon does not do what it is told."""


@dataclass(frozen=True, slots=True)
class MpsDevice:
    """A GPU, as a client of the server sees it."""

    error: int
    """The CUDA error with which the server cannot take it; 0 if there is none."""
    multiprocessors: int
    """How many it has."""


class MpsControl:
    """The daemon of this Node and its one server."""

    def __init__(self, server: MpsServer, cgroup_root: str) -> None:
        """Keep *server*, in a cgroup below *cgroup_root* where that is cgroup v2."""
        self._server = server
        self._cgroup_root = Path(cgroup_root)

    @property
    def is_installed(self) -> bool:
        """Whether the driver's root has the program."""
        return Path(f"{self._server.root_here.rstrip('/')}{PROGRAM}").exists()

    def is_running(self) -> bool:
        """Return whether a daemon answers."""
        return not connection_problem(f"{self._server.folder_here}/control")

    def is_serving(self, namespace: str) -> bool:
        """Return whether clients reach *namespace*: one that finds no server runs without a limit."""
        return not connection_problem(f"{self._server.folder_here}/{self._server.name}/{namespace}/control")

    async def start(self) -> None:
        """
        Start the daemon and its server, unless they run.

        Raises:
            MpsControlError: it cannot be started.
        """
        if not await asyncio.to_thread(self.is_running):
            folder = Path(self._server.folder_here)
            try:
                (folder / _LOGS.lstrip("/")).mkdir(parents=True, exist_ok=True)
                group = self._own_group()
            except OSError as error:
                raise MpsControlError(f"{error.filename}: {error.strerror}") from error
            await self._run("-d", "-p", PROTOCOL, "-m", group=group)
            await self._until_running()
        if self._server.name not in {row[0] for row in await self._rows("server", "list")}:
            await self._run("server", "create", self._server.name)

    async def _until_running(self) -> None:
        for _ in range(round(START_SECONDS / POLL_SECONDS)):
            if await asyncio.to_thread(self.is_running):
                return
            await asyncio.sleep(POLL_SECONDS)
        logs = f"{self._server.folder}{_LOGS}"
        raise MpsControlError(f"{PROGRAM} was started and does not answer; its log is in {logs}")

    async def devices(self) -> Mapping[str, MpsDevice]:
        """
        Return each GPU by its UUID. Where programs that are no clients shall be kept away, the server takes it first.

        Raises:
            MpsControlError: a program cannot become a client.
        """
        how = "take" if self._server.is_required else "look"
        program = [sys.executable, "-I", "-S", str(Path(occupy.__file__)), self._libcuda(), how]
        pipes = f"{self._server.folder_here}/{self._server.name}"
        output = await self._output("a first client of MPS", program, pipes, os.environ)
        rows = (line.split() for line in output.splitlines() if line.startswith("GPU-"))
        return {uuid: MpsDevice(int(error), int(multiprocessors)) for uuid, error, multiprocessors in rows}

    def _libcuda(self) -> str:
        """Return the path of libcuda beside NVML in the driver's root; its name where the linker knows it."""
        nvml = library_below(Path(self._server.root_here))
        beside = nvml and nvml.with_name(LIBCUDA)
        return str(beside) if beside and beside.exists() else LIBCUDA

    async def namespaces(self) -> Mapping[str, int]:
        """
        Return the percentage of each namespace, 100 if it has none.

        Raises:
            MpsControlError: the daemon does not answer.
        """
        rows = await self._rows("namespace", "list", f"--server={self._server.name}")
        return {row[0]: _percent(row[4]) for row in rows if len(row) > 4}

    async def keep(self, namespace: str, percent: int, found: int | None) -> None:
        """
        Make *namespace* with *percent* of the multiprocessors; it has *found*, None if it is not there.

        Raises:
            MpsControlError: it cannot be made, or serves nobody.
        """
        if found is None:
            await self._run("namespace", "create", namespace, f"--server={self._server.name}")
        if (NO_LIMIT_PERCENT if found is None else found) != percent:
            await self._limit(namespace, percent)
        if not await asyncio.to_thread(self.is_serving, namespace):
            raise MpsControlError(f"nobody answers in namespace {namespace} of MPS server {self._server.name}")

    async def _limit(self, namespace: str, percent: int) -> None:
        server, percentage = f"--server={self._server.name}", f"--active-thread-percentage={percent}"
        await self._run("namespace", "set", namespace, server, percentage)

    async def delete(self, namespace: str) -> None:
        """
        Delete *namespace* with its clients.

        Raises:
            MpsControlError: it cannot be deleted.
        """
        await self._run("namespace", "delete", namespace, f"--server={self._server.name}", "--force")

    async def clients(self) -> Counter[str]:
        """
        Return how many processes use devices by each namespace.

        Raises:
            MpsControlError: the daemon does not answer.
        """
        rows = await self._rows("client", "list")
        # A process has a row for each device.
        places = {(row[0], row[3].partition(" ")[0]) for row in rows if len(row) > 3}
        found = (place.rpartition("/") for _, place in places)
        return Counter(namespace for server, _, namespace in found if server == self._server.name)

    async def _rows(self, *words: str) -> list[list[str]]:
        output = await self._run(*words, "--format=csv,noheader")
        return [[cell.strip() for cell in line.split(",")] for line in output.splitlines() if line.strip()]

    def _own_group(self) -> str:
        """Return the cgroup of the daemon; none on a machine with cgroup v1, whose daemon ends with this process."""
        if not (self._cgroup_root / "cgroup.controllers").exists():
            return ""
        group = self._cgroup_root / _GROUP
        group.mkdir(exist_ok=True)
        return str(group)

    async def _run(self, *words: str, group: str = "") -> str:
        """Return what the control program prints."""
        root = (sys.executable, "-I", "-S", str(Path(in_driver_root.__file__)), self._server.root_here, group)
        command, variables = [*root, PROGRAM, *words], {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        return await self._output(f"{PROGRAM} {' '.join(words)}", command, self._server.folder, variables)

    async def _output(self, what: str, command: Sequence[str], pipes: str, variables: Mapping[str, str]) -> str:
        """Return what a program prints that uses the folder *pipes*."""
        logs = f"{self._server.folder}{_LOGS}"
        environment = {**variables, "CUDA_MPS_PIPE_DIRECTORY": pipes, "CUDA_MPS_LOG_DIRECTORY": logs}
        # A file, and no pipe: a daemon may keep it open.
        with tempfile.TemporaryFile(dir=SCRATCH) as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            try:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    code = await process.wait()
            except TimeoutError as error:
                raise MpsControlError(f"{what}: did not end in {DEADLINE_SECONDS:.0f} s") from error
            finally:
                if process.returncode is None:
                    with suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
            output.seek(0)
            text = output.read(OUTPUT_BYTES_MAX).decode(errors="replace")
        if code != 0:
            raise MpsControlError(f"{what}: {' '.join(text.split()) or f'ended with {code}'}")
        return text


def _percent(text: str) -> int:
    """
    Return a percentage of the list.

    >>> _percent("30.00"), _percent("-")
    (30, 100)
    """
    try:
        return round(float(text))
    except ValueError:
        return NO_LIMIT_PERCENT
