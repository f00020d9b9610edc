"""
Reading the driver, and working without one.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from threading import Event

import pytest

from hami_monitor.adapters.nvml import DriverError, Nvml
from hami_monitor.decide.observation import HostDevice

ASK = """
import asyncio
from hami_monitor.adapters.nvml import DriverError, Nvml

async def ask():
    nvml = Nvml()
    for _ in range(2):
        try:
            for device in await nvml.devices():
                print(device)
        except DriverError as error:
            print(error)

asyncio.run(ask())
"""


def ask(environment: dict[str, str]) -> list[str]:
    """Return the lines that a process prints which reads the driver twice."""
    answer = subprocess.run(
        [sys.executable, "-c", ASK],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    return answer.stdout.splitlines()


def test_devices_are_read_from_the_driver(fake_driver: dict[str, str]) -> None:
    """Index, UUID, name, memory and utilization of each device, in each reading."""
    lines = ask(fake_driver)

    assert [
        ("index=0", "uuid='GPU-aaaaaaaa-1111-2222-3333-444444444444'", "name='NVIDIA A100-SXM4-40GB'"),
        ("index=1", "uuid='GPU-bbbbbbbb-1111-2222-3333-444444444444'", "name='NVIDIA T4'"),
    ] * 2 == [tuple(line.removeprefix("HostDevice(").split(", ")[:3]) for line in lines]
    assert all("memory_used_bytes=" in line and "None" not in line for line in lines)


def test_missing_driver_is_an_error_each_time_it_is_asked(tmp_path: Path) -> None:
    """Each call tries again, so the driver may appear later."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")

    lines = ask({"LD_LIBRARY_PATH": str(tmp_path)})

    assert ["the NVIDIA driver cannot be used"] * 2 == [line.split(":")[0] for line in lines]


class Hanging(Nvml):
    """A driver that answers only once it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.is_free = Event()
        self.calls = 0

    def _read(self) -> tuple[HostDevice, ...]:
        self.calls += 1
        self.is_free.wait(10)
        return (HostDevice(0, "GPU-a", "T4", 1, 2, 3),)


async def test_hanging_driver_costs_one_thread_and_no_waiting() -> None:
    """Each call times out, none starts another reading, and the late answer is used."""
    nvml = Hanging()

    for _ in range(3):
        with pytest.raises(DriverError, match=r"has not answered within 0\.01 s"):
            await nvml.devices(timeout_seconds=0.01)
    nvml.is_free.set()

    assert ("GPU-a", 1) == ((await nvml.devices(5))[0].uuid, nvml.calls)


async def test_cancelled_caller_does_not_cancel_the_answer() -> None:
    """A service that ends while the driver hangs causes no error."""
    nvml = Hanging()
    caller = asyncio.create_task(nvml.devices(5))
    await asyncio.sleep(0.01)
    caller.cancel()
    nvml.is_free.set()

    assert ["GPU-a"] == [device.uuid for device in await nvml.devices(5)]
