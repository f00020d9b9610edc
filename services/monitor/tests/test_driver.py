"""
Cards that are lost, and a driver that is unloaded, under the monitor's own process.
"""

from pathlib import Path

import pytest

from testbed.driver.hardware import FakeDriver
from testbed.waiting import eventually

from .fake_driver import DEVICE_A, DEVICE_B
from .pod_server import PodServer
from .service import Service, Start, eventually_equal

PAUSES = [("labels", "nvidia.com/gpu.deploy.client"), ("annotations", "hami.io/driver-pause")]


async def shown(monitor: Service) -> set[str]:
    """Return the UUIDs of the devices with host metrics."""
    samples = (await monitor.samples()).get("hami_host_gpu_memory_used_bytes", {})
    return {dict(labels)["device_uuid"] for labels in samples}


async def test_lost_card_leaves_the_others(started: Start, fake_driver: dict[str, str]) -> None:
    """Only its own metrics are missing, until it is back."""
    driver = FakeDriver(Path(fake_driver["FAKE_DRIVER_DIR"]))
    async with started(**fake_driver) as monitor:
        await eventually_equal(lambda: shown(monitor), {DEVICE_A, DEVICE_B})
        driver.lose(DEVICE_A)
        await eventually_equal(lambda: shown(monitor), {DEVICE_B})
        driver.bring_back(DEVICE_A)
        await eventually_equal(lambda: shown(monitor), {DEVICE_A, DEVICE_B})


@pytest.mark.parametrize(("kind", "key"), PAUSES)
async def test_nobody_holds_the_driver_while_it_is_unloaded(
    kind: str, key: str, started: Start, pod_server: PodServer, fake_driver: dict[str, str]
) -> None:
    """The monitor closes NVML and unloads its library, and reads the next driver, whatever its version."""
    driver = FakeDriver(Path(fake_driver["FAKE_DRIVER_DIR"]))
    async with started(**fake_driver) as monitor:
        await eventually_equal(lambda: shown(monitor), {DEVICE_A, DEVICE_B})
        pod_server.change_node(**{kind: {key: "paused-for-driver-upgrade"}})
        await eventually(lambda: driver.clients() == ())
        driver.unload()
        await eventually_equal(lambda: shown(monitor), set())
        assert "libnvidia-ml" not in Path(f"/proc/{monitor.process.pid}/maps").read_text()
        driver.load("580.95.05")
        assert driver.clients() == ()
        pod_server.change_node()
        await eventually_equal(lambda: shown(monitor), {DEVICE_A, DEVICE_B})


async def test_monitor_that_starts_during_a_pause_does_not_open_the_driver(
    started: Start, pod_server: PodServer, fake_driver: dict[str, str]
) -> None:
    """It learns of the pause before it would open it."""
    driver = FakeDriver(Path(fake_driver["FAKE_DRIVER_DIR"]))
    pod_server.change_node(annotations={"hami.io/driver-pause": "a reset"})
    async with started(**fake_driver) as monitor:
        await eventually(lambda: any("a reset" in str(line.get("error")) for line in monitor.logs))
        assert driver.clients() == ()


async def test_library_below_the_driver_root_is_used(
    started: Start, fake_driver: dict[str, str], tmp_path: Path
) -> None:
    """As the chart mounts it from `devicePlugin.nvidiaDriverRoot`; the container itself has no library."""
    directory = tmp_path / "root/usr/lib/x86_64-linux-gnu"
    directory.mkdir(parents=True)
    source = Path(fake_driver["LD_LIBRARY_PATH"]) / "libnvidia-ml.so.1"
    (directory / source.name).write_bytes(source.read_bytes())
    environment = {"FAKE_DRIVER_DIR": fake_driver["FAKE_DRIVER_DIR"]}
    async with started(f"--driver-root-ctr-path={tmp_path}/root", **environment) as monitor:
        await eventually_equal(lambda: shown(monitor), {DEVICE_A, DEVICE_B})
