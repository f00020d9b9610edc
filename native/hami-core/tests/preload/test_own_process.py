"""
A process knows under which pid NVML lists it, also if contexts of other containers are made at the same time.
"""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from containers import Container

from hamicommon.wire.region.codec import decode_region
from testbed.driver.hardware import FIRST_DRIVER_WITH_MPS, FakeDriver
from testbed.driver.mps import mps_control

ALLOCATE = """
say("ready")
wait()
cuda = Cuda()
say("made")
for step in range(4):
    wait()
    say(cuda.allocate(int(sys.argv[1]) * MIB)[0])
wait()
"""


@pytest.fixture
def node(container: Container) -> list[Container]:
    """Two containers on one node. A context takes 128 MiB. The driver sleeps before it appears, and after."""
    environment = container.environment | {
        "CUDA_DEVICE_MEMORY_LIMIT": "4g",
        "FAKE_DRIVER_CONTEXT_MIB": "128",
        "FAKE_DRIVER_FAULTS": "cuDevicePrimaryCtxRetain:1:SLEEP_1000",
        "FAKE_DRIVER_CONTEXT_MS": "1000",
        "FAKE_DRIVER_PID_OFFSET": "100000",
        "FAKE_DRIVER_DIR": str(container.folder / "hardware"),
    }
    folders = [container.folder / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    return [replace(container, folder=folder, environment=environment) for folder in folders]


def start(container: Container, program: str, mib: int) -> "subprocess.Popen[str]":
    """Start a program with its amount as an argument, and return it when it runs."""
    process = container.start(f"sys.argv.append('{mib}')\n" + program)
    assert "ready" == answer(process)
    return process


def answer(process: "subprocess.Popen[str]") -> object:
    """Return what a program says next."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()[1]
    return json.loads(line)


def go_on(*processes: "subprocess.Popen[str]") -> None:
    """Let programs do their next step at the same time."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()


def known_pid(container: Container) -> int:
    """Return the pid under which NVML lists the container's only process, as its region says."""
    (slot,) = decode_region(container.region.read_bytes()).slots
    return slot.host_pid


def finish(processes: "Sequence[subprocess.Popen[str]]") -> None:
    """End the programs without errors."""
    for process in processes:
        _, errors = process.communicate("\n", timeout=20)
        assert (0, "") == (process.returncode, errors)


def test_process_finds_itself_after_contexts_of_two_containers_overlapped(node: list[Container]) -> None:
    """
    At first each sees both appear. What they allocate later shows which is which, although both allocate.
    """
    processes = [start(container, ALLOCATE, mib) for container, mib in zip(node, (100, 150), strict=True)]
    go_on(*processes)
    assert ["made", "made"] == [answer(process) for process in processes]
    listed = [process.pid + 100000 for process in processes]
    assert set() == {known_pid(container) for container in node} & set(listed)

    for process in [*processes, *processes, *processes, *processes]:
        go_on(process)
        assert 0 == answer(process)
    found = [known_pid(container) for container in node]
    memory = [decode_region(container.region.read_bytes()).slots[0].memory[0] for container in node]
    finish(processes)

    assert listed == found
    assert [528 << 20, 728 << 20] == [device.total for device in memory]


def test_first_client_of_an_mps_server_does_not_take_the_server_for_itself(node: list[Container]) -> None:
    """
    The server's context appears with the first client's. What the client allocates shows that it is not the server.
    """
    hardware = node[0].environment["FAKE_DRIVER_DIR"]
    FakeDriver(Path(hardware)).load(version=FIRST_DRIVER_WITH_MPS)
    with mps_control(node[0].build / "fake_driver/nvidia-cuda-mps-control", FAKE_DRIVER_DIR=hardware) as control:
        control.start()
        control.ask("server", "create", "s")
        mps = {"CUDA_MPS_PIPE_DIRECTORY": str(control.pipe / "s")}
        container = replace(node[0], environment=node[0].environment | mps)
        process = start(container, ALLOCATE, 100)
        known = []
        for _ in range(4):
            go_on(process)
            answer(process)
            known.append(known_pid(container))
        server = int(control.ask("server", "get", "s", "pid"))
        finish([process])

    assert server + 100000 not in known
    assert process.pid + 100000 == known[-1]
