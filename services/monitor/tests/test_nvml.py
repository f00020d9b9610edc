"""
Reading the driver, and working without one.
"""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.driver.hardware import FIRST_DRIVER_WITH_LIMITS, FakeDriver, StandInCgroups
from testbed.driver.memory_limits import limit_memory
from testbed.waiting import eventually

from .fake_driver import DEVICE_A, DEVICE_B, built
from .service import CONTAINER

READ = """
import asyncio, json, sys
from dataclasses import asdict
from hami_monitor.adapters.nvml import Driver
from hamicommon.runtime.host.nvml import NvmlError

async def main():
    driver = Driver()
    for line in sys.stdin:
        try:
            found, asked = await driver.devices(), line.split()
            if asked:
                print(json.dumps(await driver.used_by_cgroup(*asked[:1], asked[1:])), flush=True)
                continue
            answer = {"read": [asdict(device) for device in found.read], "unread": found.unread}
        except NvmlError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)

asyncio.run(main())
"""


class Reader:
    """A process that reads the driver each time it is told to."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", READ],
            env=os.environ | environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert 0 == self._process.wait()

    def answer(self, *asked: str) -> dict[str, Any]:
        """Return what one reading found, or what the cgroups *asked* for have of the device that comes first."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*asked, file=self._process.stdin, flush=True)
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def device(self, index: int = 0) -> dict[str, Any]:
        """Return what one reading says of the device at *index*."""
        device: dict[str, Any] = self.answer()["read"][index]
        return device


def test_devices_are_read_from_the_driver(fake_driver: dict[str, str]) -> None:
    """Index, UUID and name of each device, in each reading."""
    with Reader(fake_driver) as reader:
        for _ in range(2):
            assert [(0, DEVICE_A, "NVIDIA A100-SXM4-40GB"), (1, DEVICE_B, "NVIDIA T4")] == [
                (device["index"], device["uuid"], device["name"]) for device in reader.answer()["read"]
            ]


def test_each_value_of_a_device_is_what_its_sensor_says(fake_driver: dict[str, str]) -> None:
    """In the driver's units."""
    driver = FakeDriver(Path(fake_driver["FAKE_DRIVER_DIR"]))
    driver.connect(DEVICE_A, "switch", 2)
    expected = {
        "temperature_celsius": 61,
        "memory_temperature_celsius": 72,
        "power_milliwatts": 250_000,
        "power_limit_milliwatts": 300_000,
        "energy_millijoules": 12_345_678,
        "memory_clock_mhz": 1593,
        "clock_reasons": 0x40,
        "pcie_replays": 3,
        "pcie_transmitted_bytes": 2**33 + 1,
        "pcie_received_bytes": 2**34 + 1,
        "nvlink_transmitted_kib": 2**35 + 1,
        "nvlink_received_kib": 2**36 + 1,
    }
    driver.set(DEVICE_A, **expected)
    driver.set(DEVICE_A, clock_mhz=1200, ecc_corrected_aggregate=7, ecc_uncorrected_aggregate=2)
    driver.set(DEVICE_A, remapped_corrected=1, remapped_uncorrected=4)

    with Reader(fake_driver) as reader:
        device = reader.device()

    expected |= {"sm_clock_mhz": 1200, "ecc_corrected": 7, "ecc_uncorrected": 2, "remapped_rows": 5}
    expected |= {"memory_total_bytes": 40960 << 20, "memory_reserved_bytes": 0, "memory_used_bytes": 0}
    assert expected == {name: device[name] for name in expected}


def test_value_that_a_device_does_not_have_is_none(fake_driver: dict[str, str]) -> None:
    """A T4 has no remapped rows and no NVLinks, an A100 no retired pages; ECC may be off."""
    FakeDriver(Path(fake_driver["FAKE_DRIVER_DIR"])).set(DEVICE_B, ecc_mode=0)

    with Reader(fake_driver) as reader:
        a100, t4 = reader.answer()["read"]

    assert (None, 0) == (a100["retired_pages"], t4["retired_pages"])
    assert (0, None) == (a100["remapped_rows"], t4["remapped_rows"])
    assert (0, None) == (a100["ecc_corrected"], t4["ecc_corrected"])
    assert (None, None) == (a100["nvlink_received_kib"], t4["nvlink_received_kib"])


def test_xid_errors_are_counted_by_number(fake_driver: dict[str, str]) -> None:
    """From the first reading on, each once."""
    driver = FakeDriver(Path(fake_driver["FAKE_DRIVER_DIR"]))
    with Reader(fake_driver) as reader:
        assert {} == reader.device()["xid_errors"]
        for xid in (79, 31, 31):
            driver.report_xid(DEVICE_A, xid)

        assert {"79": 1, "31": 2} == reader.device()["xid_errors"]
        a100, t4 = reader.answer()["read"]
        assert ({"79": 1, "31": 2}, {}) == (a100["xid_errors"], t4["xid_errors"])


async def test_processes_on_a_device_are_listed_with_their_memory(fake_driver: dict[str, str]) -> None:
    """A program outside any container counts like one in a container."""
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTAINER, env=os.environ | fake_driver, stdin=asyncio.subprocess.PIPE
    )
    with Reader(fake_driver) as reader:
        await eventually(lambda: [used for _, used in processes(reader)] == [(128 << 20) + (100 << 20)])
        assert [program.pid] == [pid for pid, _ in processes(reader)]
        assert program.stdin is not None
        program.stdin.close()
        assert 0 == await program.wait()
        await eventually(lambda: processes(reader) == [])


def processes(reader: Reader) -> list[tuple[int, int]]:
    """Return pid and memory of each process on the first device."""
    return [(process["pid"], process["used_bytes"]) for process in reader.device()["processes"]]


async def test_use_of_a_process_is_the_mean_since_the_last_reading(fake_driver: dict[str, str]) -> None:
    """A program that launches without pause keeps its device busy; one that does nothing has no sample."""
    program = await asyncio.create_subprocess_exec(
        str(built("limiter_load")), "busy_5000", "60", env=os.environ | fake_driver, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        with Reader(fake_driver) as reader:

            def busy() -> list[float]:
                found = [process["busy_percent"] for process in reader.device()["processes"]]
                return [percent for percent in found if percent is not None]

            await eventually(lambda: any(50 < percent <= 100 for percent in busy()))
    finally:
        program.kill()
        await program.wait()


@pytest.mark.parametrize("devices", ["", "devices.csv"], ids=["misc", "dmem"])
async def test_use_by_a_cgroup_is_what_the_driver_counts_whatever_its_processes_are_called(
    fake_driver: dict[str, str], tmp_path: Path, devices: str
) -> None:
    """Of cgroups with a limit on the device, whatever it says of another one. An older driver counts none."""
    hardware, group = Path(fake_driver["FAKE_DRIVER_DIR"]), "/kubepods/pod1/c1"
    groups = StandInCgroups(tmp_path / "cgroup", hardware / devices if devices else None)
    asked = [str(groups.create(path)) for path in (group, "/kubepods/pod1/c2")]
    environment = fake_driver | groups.variables(group)
    with Reader(environment) as reader:
        assert {} == reader.answer(DEVICE_A, *asked)
    FakeDriver(hardware).load(version=FIRST_DRIVER_WITH_LIMITS)
    limit_memory(asked[0], {DEVICE_A: 1000 << 20}, os.environ | environment)
    program = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CONTAINER, env=os.environ | environment, stdin=asyncio.subprocess.PIPE
    )
    with Reader(environment) as reader:
        expected = {asked[0]: (128 << 20) + (100 << 20)}
        await eventually(lambda: reader.answer(DEVICE_A, *reversed(asked), str(tmp_path / "gone")) == expected)
        assert {} == reader.answer(DEVICE_B, *asked)
        program.kill()
        await program.wait()
        await eventually(lambda: reader.answer(DEVICE_A, *asked) == {asked[0]: 0})


def test_device_that_fails_at_any_call_leaves_the_other(fake_driver: dict[str, str]) -> None:
    """Whichever value cannot be read, only that device is left out, and the reason is known."""
    driver = FakeDriver(Path(fake_driver["FAKE_DRIVER_DIR"]))
    calls = ("UUID", "PowerUsage", "FieldValues", "ComputeRunningProcesses_v3", "ProcessUtilization")
    with Reader(fake_driver) as reader:
        for call in (f"nvmlDeviceGet{name}" for name in calls):
            driver.lose(DEVICE_A, at=call)
            answer = reader.answer()
            assert [DEVICE_B] == [device["uuid"] for device in answer["read"]], call
            assert ["0"] == list(answer["unread"]), call
            driver.bring_back(DEVICE_A)
            assert {} == reader.answer()["unread"], call


def test_missing_driver_is_an_error_each_time_it_is_asked(tmp_path: Path) -> None:
    """Each call tries again, so the driver may appear later."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")

    with Reader({"LD_LIBRARY_PATH": str(tmp_path)}) as reader:
        answers = [reader.answer()["error"] for _ in range(2)]

    assert ["libnvidia-ml.so.1 cannot be used"] * 2 == [answer.split(";")[0] for answer in answers]
