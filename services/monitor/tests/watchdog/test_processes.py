"""
What `/proc` says of real processes.
"""

import asyncio
import mmap
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from hami_monitor.adapters import processes as module
from hami_monitor.adapters.processes import Processes
from hamicommon.pod.control_groups import ContainerGroup
from testbed.waiting import eventually

MAPPER = """
import mmap, sys
files = [open(path, "rb") for path in sys.argv[1:]]
kept = [mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) for file in files]
print("ready", flush=True)
sys.stdin.readline()
"""
"""A program that maps the files it is given."""

Start = Callable[..., Awaitable[asyncio.subprocess.Process]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Yield the function that starts a program which maps files, and returns once it has."""
    running: list[asyncio.subprocess.Process] = []

    async def started(
        *paths: Path, program: tuple[str, ...] = (sys.executable, "-c", MAPPER)
    ) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        running.append(await asyncio.create_subprocess_exec(*program, *map(str, paths), stdin=pipe, stdout=pipe))
        assert running[-1].stdout is not None
        await running[-1].stdout.readline()
        return running[-1]

    yield started
    for process in running:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """Return a file with the library's name."""
    path = tmp_path / "libvgpu.so.v1"
    path.write_bytes(b"x" * mmap.PAGESIZE)
    return path


async def test_container_and_pid_of_a_process_are_found(start: Start) -> None:
    """The container is asked for once while a process runs the same program."""
    asked: list[int] = []

    def find_container(pid: int) -> ContainerGroup:
        asked.append(pid)
        return ContainerGroup("u1", "c1")

    processes = Processes(find_container)
    running = await start()

    for _ in range(2):
        [found] = (await processes.find([running.pid])).values()

    assert (running.pid, running.pid, ContainerGroup("u1", "c1")) == (found.program.pid, found.own_pid, found.group)
    assert [running.pid] == asked


async def test_process_that_ended_is_left_out(start: Start) -> None:
    """Even while its parent has not waited for it, and while its pid is still listed by the driver."""
    processes = Processes()
    shell = await start(program=("sh", "-c", "sleep 0 & echo $!; read -r line"))
    [zombie] = await eventually_children(shell.pid, 1)
    assert "Z" == Path(f"/proc/{zombie}/stat").read_text().rpartition(")")[2].split()[0]

    assert {} == await processes.find([zombie, 2**22 + 1])


async def eventually_children(pid: int, count: int) -> list[int]:
    """Return the ended children of *pid* once there are *count*."""

    def ended() -> list[int]:
        children = map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return [child for child in children if ") Z " in Path(f"/proc/{child}/stat").read_text()]

    await eventually(lambda: len(ended()) == count, seconds=20)
    return ended()


async def test_what_a_process_executes_is_another_program(start: Start) -> None:
    """What its maps showed before does not count."""
    processes = Processes()
    shell = await start(program=("sh", "-c", "echo ready; read -r line; exec sleep 60"))
    before = (await processes.find([shell.pid]))[shell.pid]

    assert shell.stdin is not None
    shell.stdin.write(b"\n")
    await eventually(lambda: Path(f"/proc/{shell.pid}/comm").read_text() == "sleep\n", seconds=20)
    after = (await processes.find([shell.pid]))[shell.pid]

    assert before.program.start_ticks == after.program.start_ticks
    assert before.program != after.program


async def test_library_is_seen_in_the_mappings(start: Start, library: Path) -> None:
    """Under whatever version it is installed."""
    processes = Processes()
    outside, inside = await start(), await start(library)
    await processes.find([outside.pid, inside.pid])

    found = await processes.look_for_library([outside.pid, inside.pid])

    assert {outside.pid: False, inside.pid: True} == {pid: process.has_library for pid, process in found.items()}


async def test_each_process_without_the_library_is_read_in_turn(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Many of them cost no more in one reading, and none is forgotten for the others."""
    monkeypatch.setattr(module, "MAPS_EACH_READING", 2)
    processes = Processes()
    pids = [(await start()).pid for _ in range(3)]
    await processes.find(pids)
    counts = []

    for _ in range(2):
        found = await processes.look_for_library(pids)
        counts.append(sum(process.has_library is False for process in found.values()))

    assert [2, 3] == counts


async def test_mappings_are_read_up_to_a_bound(start: Start, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that maps countless files costs no more."""
    monkeypatch.setattr(module, "MAPS_BYTES", 1)
    monkeypatch.setattr(module, "_CHUNK_BYTES", 64)
    processes = Processes()
    running = await start(library)
    await processes.find([running.pid])

    [found] = (await processes.look_for_library([running.pid])).values()

    assert found.has_library is False
