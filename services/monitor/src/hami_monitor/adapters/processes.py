"""
Read from `/proc` what the Node's kernel says about processes that use a device.

What is read of a process once stays valid while it runs the same program; only whether the library is mapped is read
again until it is. `/proc/PID/maps` can be long, and the process can delay its reading. So at most MAPS_EACH_READING of
them are read at a time, up to MAPS_BYTES, in a thread that may hang without holding up anything else.
Source: https://man7.org/linux/man-pages/man5/proc.5.html
"""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path

from hami_monitor.decide.watchdog.findings import HostProcess, Program
from hamicommon.pod.control_groups import ContainerGroup, container_group
from hamicommon.runtime.host.worker import Worker

CALL_SECONDS = 5.0
MAPS_EACH_READING = 32
MAPS_BYTES = 16 << 20
"""A process may have 65530 mappings, in lines of some 100 bytes. The library is not found behind more than that."""
LIBRARY = b"/libvgpu.so"
_CHUNK_BYTES = 1 << 16
_INITIAL_PID_NAMESPACE = 0xEFFFFFFC
"""Source: https://github.com/torvalds/linux/blob/v6.12/include/linux/proc_ns.h (PROC_PID_INIT_INO)"""
_FLAGS, _START_TICKS, _STACK_START = 6, 19, 25
"""Places in `/proc/PID/stat`, behind the name."""
_MPS_SERVER = b"nvidia-cuda-mps"
"""The name of `nvidia-cuda-mps-server`; the kernel keeps 15 bytes."""
_EXITING = 0x4
"""Source: https://github.com/torvalds/linux/blob/v6.12/include/linux/sched.h (PF_EXITING)"""


def is_in_nodes_pid_namespace() -> bool:
    """Return whether this process is in the Node's pid namespace, whose pids the driver reports."""
    return Path("/proc/self/ns/pid").stat().st_ino == _INITIAL_PID_NAMESPACE


def container_of(pid: int) -> ContainerGroup | None:
    """
    Return the container of the process *pid*.

    Raises:
        OSError: there is no such process.
    """
    return container_group(Path(f"/proc/{pid}/cgroup").read_text(errors="replace"))


class Processes:
    """The processes that were listed last."""

    def __init__(
        self,
        find_container: Callable[[int], ContainerGroup | None] = container_of,
        has_nodes_pids: bool | None = None,
    ) -> None:
        """Use *find_container* to tell the container of a pid. If *has_nodes_pids* is None, ask the kernel."""
        self.has_nodes_pids = is_in_nodes_pid_namespace() if has_nodes_pids is None else has_nodes_pids
        """Whether the pids that the driver reports are those of the same processes here."""
        self._find_container = find_container
        self._worker = Worker("/proc")
        self._maps_worker = Worker("/proc/PID/maps")
        self._known: dict[int, HostProcess] = {}
        self._last_read: dict[int, int] = {}
        """By pid, the number of the reading in which its maps were last read."""
        self._readings = 0

    async def find(self, pids: Iterable[int]) -> Mapping[int, HostProcess]:
        """
        Return those of *pids* that run, and forget all others.

        Raises:
            HangError: the kernel does not answer.
        """
        self._known = await self._worker.call(self._find, tuple(pids), dict(self._known), seconds=CALL_SECONDS)
        return self._known

    async def look_for_library(self, pids: Iterable[int]) -> Mapping[int, HostProcess]:
        """
        Read whether the library is mapped by *pids*, those that were read longest ago first; return all processes.

        Raises:
            HangError: a process delays it.
        """
        wanted = {pid for pid in pids if pid in self._known and not self._known[pid].has_library}
        chosen = tuple(islice(sorted(wanted, key=lambda pid: self._last_read.get(pid, 0)), MAPS_EACH_READING))
        self._readings += 1
        self._last_read = {pid: number for pid, number in self._last_read.items() if pid in self._known}
        self._last_read |= dict.fromkeys(chosen, self._readings)
        if chosen:
            answers = await self._maps_worker.call(_map_library, chosen, seconds=CALL_SECONDS)
            for pid, has_library in answers.items():
                self._known[pid] = replace(self._known[pid], has_library=has_library)
        return self._known

    def _find(self, pids: tuple[int, ...], known: Mapping[int, HostProcess]) -> dict[int, HostProcess]:
        found = {}
        for pid in pids:
            try:
                program = _program(pid)
                if program is None:
                    continue
                before = known.get(pid)
                if before is None or before.program != program:
                    before = HostProcess(
                        program, _own_pid(pid), self._find_container(pid), is_mps_server=_name(pid) == _MPS_SERVER
                    )
            except (OSError, ValueError, IndexError):
                continue  # It has ended.
            found[pid] = before
        return found


def _program(pid: int) -> Program | None:
    """Return what *pid* runs; None if it is ending, which may take long while the driver frees its memory."""
    fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    if int(fields[_FLAGS]) & _EXITING:
        return None
    return Program(pid, int(fields[_START_TICKS]), int(fields[_STACK_START]))


def _name(pid: int) -> bytes:
    return Path(f"/proc/{pid}/comm").read_bytes().rstrip(b"\n")


def _own_pid(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_bytes().splitlines()
    return next((int(line.split()[-1]) for line in lines if line.startswith(b"NSpid:")), pid)


def _map_library(pids: Iterable[int]) -> dict[int, bool | None]:
    return {pid: _maps_library(pid) for pid in pids}


def _maps_library(pid: int) -> bool | None:
    """Return whether *pid* maps the library; None if it has ended, or must not be read."""
    before, left = b"", MAPS_BYTES
    try:
        maps = os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while left > 0 and (chunk := os.read(maps, _CHUNK_BYTES)):
            if LIBRARY in before + chunk:
                return True
            before, left = chunk[-len(LIBRARY) :], left - len(chunk)
    except OSError:
        return None
    finally:
        os.close(maps)
    return False if before else None
