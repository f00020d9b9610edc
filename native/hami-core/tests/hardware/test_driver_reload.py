"""
A driver that is unloaded, and the same or another that is loaded.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

import pynvml as n
import pytest
from containers import GPU_A, GPU_B, GPU_C, Container
from hardware.process import Start, error

from testbed.driver.hardware import DriverClient, DriverInUseError, FakeDriver

NOT_LOADED = error(n.NVML_ERROR_DRIVER_NOT_LOADED)
MISMATCH = error(n.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
UNKNOWN = error(n.NVML_ERROR_UNKNOWN)
CUDA_NO_DEVICE, CUDA_DRIVER_MISMATCH, CUDA_UNKNOWN = 100, 803, 999


def test_nothing_opens_a_driver_that_is_not_loaded(start: Start, driver: FakeDriver) -> None:
    """
    The same process opens it when it is loaded.
    """
    driver.unload()
    process = start(init=False)

    assert [NOT_LOADED, CUDA_NO_DEVICE] == process.ask_all("n.nvmlInit()", "Cuda().started")
    assert () == driver.clients()
    driver.load()
    assert [None, 3] == process.ask_all("n.nvmlInit()", "n.nvmlDeviceGetCount()")


def test_clients_keep_the_driver_loaded(start: Start, driver: FakeDriver) -> None:
    """
    Unloading fails as rmmod does, and their calls go on working.
    """
    process = start()

    with pytest.raises(DriverInUseError, match=str(process.process.pid)):
        driver.unload()
    assert 3 == process.ask("n.nvmlDeviceGetCount()")
    process.ask("n.nvmlShutdown()")
    driver.unload()


def test_process_whose_driver_went_away_must_open_it_again(start: Start, driver: FakeDriver) -> None:
    """
    Its calls fail although a driver is back, until it has shut NVML down as often as it opened it.
    """
    process = start()
    process.ask("n.nvmlInit()")
    driver.unload(despite_clients=True)

    assert UNKNOWN == process.ask("n.nvmlDeviceGetCount()")
    driver.load()
    assert UNKNOWN == process.ask("gpu(0)")
    assert [None, UNKNOWN] == process.ask_all("n.nvmlShutdown()", "n.nvmlDeviceGetCount()")
    assert [None, None, 3] == process.ask_all("n.nvmlShutdown()", "n.nvmlInit()", "n.nvmlDeviceGetCount()")


def test_waiting_for_events_ends_with_the_driver(start: Start, driver: FakeDriver) -> None:
    """
    The wait fails within its time.
    """
    process = start()
    process.keep("events", "n.nvmlEventSetCreate()")
    process.send("n.nvmlEventSetWait_v2(events, 60000)")
    driver.unload(despite_clients=True)

    assert UNKNOWN == process.answer()


def test_cuda_never_gets_its_driver_back(start: Start, driver: FakeDriver) -> None:
    """
    Its calls go on failing. A new process opens the driver.
    """
    process = start()
    process.keep("cuda", "Cuda()")
    driver.unload(despite_clients=True)
    driver.load()

    assert CUDA_UNKNOWN == process.ask("cuda.allocate(1)[0]")
    assert 0 == start().ask("Cuda().allocate(1)[0]")


def test_driver_may_return_with_other_cards(start: Start, driver: FakeDriver) -> None:
    """
    A process that opens it again sees those that `devices.csv` has then.
    """
    process = start()
    process.ask("n.nvmlShutdown()")
    driver.unload()
    rows = (driver.folder / "devices.csv").read_text().splitlines()
    (driver.folder / "devices.csv").write_text("\n".join(row for row in rows if GPU_B not in row))
    driver.load()

    assert [None, 2] == process.ask_all("n.nvmlInit()", "n.nvmlDeviceGetCount()")
    assert [GPU_A, GPU_C] == process.ask("[n.nvmlDeviceGetUUID(gpu(index)) for index in range(2)]")


def test_loaded_library_does_not_fit_a_newer_driver(start: Start, driver: FakeDriver) -> None:
    """
    A process that loads the library after the upgrade has the new one.
    """
    process = start()
    process.keep("cuda", "ctypes.CDLL('libcuda.so.1')")
    assert ["570.124.06", None] == process.ask_all("n.nvmlSystemGetDriverVersion()", "n.nvmlShutdown()")
    driver.unload()
    driver.load("580.95.05")

    assert [MISMATCH, CUDA_DRIVER_MISMATCH] == process.ask_all("n.nvmlInit()", "cuda.cuInit(0)")
    versions = start().ask_all("n.nvmlSystemGetDriverVersion()", "n.nvmlSystemGetNVMLVersion()")
    assert ["580.95.05", "12.580.95.05"] == versions


def test_library_has_the_version_in_its_file_name(
    container: Container, start: Start, driver: FakeDriver, tmp_path: Path
) -> None:
    """
    Programs open a link to that file, as the driver's installer makes it.
    """
    shutil.copy(container.build / "fake_driver/libnvidia-ml.so.1", tmp_path / "libnvidia-ml.so.580.95.05")
    (tmp_path / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    process = start(init=False, LD_LIBRARY_PATH=str(tmp_path))

    assert MISMATCH == process.ask("n.nvmlInit()")
    driver.load("580.95.05")
    assert [None, "580.95.05"] == process.ask_all("n.nvmlInit()", "n.nvmlSystemGetDriverVersion()")


def test_clients_are_those_who_hold_the_driver(start: Start, driver: FakeDriver) -> None:
    """
    Each has its number of nvmlInit without nvmlShutdown. CUDA holds the driver until its process ends.
    """
    one, other = start(), start(init=False)
    one.ask("n.nvmlInit()")
    other.ask("Cuda().started")
    pids = one.process.pid, other.process.pid

    name = Path(sys.executable).name
    expected = {DriverClient(pids[0], "nvml", 2, name), DriverClient(pids[1], "cuda", 1, name)}
    assert expected == set(driver.clients())
    one.ask_all("n.nvmlShutdown()", "n.nvmlShutdown()")
    assert [pids[1]] == [client.pid for client in driver.clients()]
    other.kill()
    assert () == driver.clients()


def test_forked_child_holds_the_driver_like_its_parent(start: Start, driver: FakeDriver) -> None:
    """
    It has the parent's open files, as with a device file.
    """
    parent = start()
    child = parent.ask("os.fork() or __import__('signal').pause()")
    try:
        parent.process.kill()
        parent.process.wait()
        assert [parent.process.pid] == [client.pid for client in driver.clients()]
    finally:
        os.kill(child, signal.SIGKILL)
