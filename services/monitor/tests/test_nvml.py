"""
Reading the driver, and working without one.
"""

import os
import subprocess
import sys
from pathlib import Path

ASK = """
import asyncio
from hami_monitor.adapters.nvml import Driver
from hamicommon.runtime.nvml import NvmlError

async def ask():
    driver = Driver()
    for _ in range(2):
        try:
            for device in (await driver.devices()).read:
                print(device)
        except NvmlError as error:
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

    assert ["libnvidia-ml.so.1 cannot be used"] * 2 == [line.split(";")[0] for line in lines]
