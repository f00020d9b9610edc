"""
Cards that fail and come back, and a driver that hangs, goes and returns, under the plugin's own process.
"""

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import NODE, PluginProcess, a_node, a_pod, needs_fake_driver

from testbed.driver.hardware import FakeDriver, FakeNode

pytestmark = needs_fake_driver

GPUS = FakeNode.of("eight", "NVIDIA A100-SXM4-40GB", 40960, 8).gpus
UUIDS = [gpu.uuid for gpu in GPUS]
THIRD = UUIDS[3]
REGISTER, FAULTS, RESTORE = "hami.io/node-nvidia-register", "hami.io/device-faults", "hami.io/device-restore"
NVML_ERROR_UNKNOWN = 999
HEALTH_SECONDS = 2
"""How often the plugin reads the devices."""
PAUSE, OPERATOR_LABEL = "hami.io/driver-pause", "nvidia.com/gpu.deploy.device-plugin"


HARDWARE = "uuid,name,memory_mib,numa_node,pci_bus_id\n" + "".join(
    f"{gpu.uuid},{gpu.name},{gpu.memory_mib},0,00000000:{index + 1:02X}:00.0\n" for index, gpu in enumerate(GPUS)
)


class EightCards(PluginProcess):
    """The plugin on a Node with eight devices."""

    def __init__(self, host: Path, api: ApiServer, kubelet: Kubelet, *flags: str, hardware: str = HARDWARE) -> None:
        super().__init__(host, api, kubelet, *flags)
        self.hardware = hardware

    async def offers(self, *unhealthy: str) -> None:
        """Wait until kubelet and Node have eight devices, and just those in *unhealthy* as such."""
        await self.until(lambda: _seen_by_kubelet(self.kubelet) == dict.fromkeys(UUIDS, True) | _false(unhealthy))
        await self.until(lambda: _annotated(self.api) == dict.fromkeys(UUIDS, True) | _false(unhealthy))

    def threads(self) -> int:
        """Return how many threads the process has."""
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))


@pytest.fixture
def driver(host: Path) -> FakeDriver:
    """Return the driver of the Node, with its cards."""
    (host / "hardware").mkdir()
    (host / "hardware/devices.csv").write_text(HARDWARE)
    return FakeDriver(host / "hardware")


@asynccontextmanager
async def running(host: Path, api: ApiServer, kubelet: Kubelet, *flags: str) -> AsyncIterator[EightCards]:
    """Yield the plugin that offers eight healthy devices."""
    if ("nodes", "", NODE) not in api.objects:
        api.put("nodes", a_node())
    async with EightCards(host, api, kubelet, *flags) as plugin:
        await plugin.serving()
        await plugin.offers()
        yield plugin


def reasons(api: ApiServer) -> list[str]:
    """Return the reasons of the Node's Events, in order."""
    return [event["reason"] for event in events(api)]


def events(api: ApiServer) -> list[dict[str, Any]]:
    """Return the Node's Events, in order."""
    found = [item for key, item in api.objects.items() if key[0] == "events"]
    return [event for event in found if event["involvedObject"]["kind"] == "Node"]


def unhealthy_in_events(api: ApiServer) -> set[str]:
    """Return the devices that the Node's Events ever called unhealthy."""
    told = [event["message"] for event in events(api) if event["reason"] == "DeviceUnhealthy"]
    return {uuid for uuid in UUIDS for message in told if uuid in message}


def change_node(api: ApiServer, kind: str, key: str, value: str | None) -> None:
    """Set a label or an annotation of the Node; None removes it."""
    node = api.objects["nodes", "", NODE]
    found = {**(node["metadata"].get(kind) or {}), key: value}
    metadata = node["metadata"] | {kind: {name: text for name, text in found.items() if text is not None}}
    api.put("nodes", node | {"metadata": metadata})


async def test_one_lost_card_leaves_seven(host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver) -> None:
    """Within 10 s it is unhealthy for kubelet, scheduler and people; the others take containers as before."""
    async with running(host, api, kubelet) as plugin:
        began = time.monotonic()
        driver.lose(THIRD)
        await plugin.offers(THIRD)
        took_seconds = time.monotonic() - began
        await plugin.until(lambda: reasons(api) == ["DeviceUnhealthy"])
        await _start_container(plugin, UUIDS[4])
        _, metrics = await plugin.get("/metrics")

    assert took_seconds < 10
    assert "GPU is lost" in events(api)[0]["message"]
    assert {THIRD: ["lost"]} == _faults(api)
    assert f'hami_device_plugin_device_faults{{cause="lost",device_uuid="{THIRD}"}} 1.0' in metrics
    assert 1 == len(kubelet.registrations)


async def test_card_that_hangs_at_the_start_is_never_offered(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """Each card is read, and its events are heard, before the kubelet gets the first list."""
    driver.hang(THIRD, call="nvmlDeviceGetTotalEccErrors")
    api.put("nodes", a_node())
    async with EightCards(host, api, kubelet) as plugin:
        await plugin.offers(THIRD)

    assert dict.fromkeys(UUIDS, True) | {THIRD: False} == _by_uuid(kubelet.first_devices)


async def test_wait_for_events_that_fails_makes_no_card_unhealthy(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """An error that a card reports afterwards is that card's."""
    async with running(host, api, kubelet) as plugin:
        driver.fail(NVML_ERROR_UNKNOWN, call="nvmlEventSetWait_v2")
        await asyncio.sleep(2 * HEALTH_SECONDS + 1)
        assert dict.fromkeys(UUIDS, True) == _seen_by_kubelet(kubelet)
        driver.recover()
        driver.report_xid(THIRD, 79)

        await plugin.offers(THIRD)

    assert {THIRD: ["xid"]} == _faults(api)


async def test_plugin_that_starts_beside_a_lost_card_offers_the_others(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """A card that the Node had before keeps its place in the inventory; its index and UUID are unchanged."""
    async with running(host, api, kubelet):
        pass
    driver.lose(THIRD)
    async with EightCards(host, api, kubelet) as plugin:
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.offers(THIRD)

    [lost] = [device for device in json.loads(api.annotations("nodes", "", NODE)[REGISTER]) if device["id"] == THIRD]
    assert 3 == lost["index"]


async def test_card_that_was_never_seen_is_offered_once_it_answers(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """The plugin opens NVML again now and then to look for it."""
    driver.lose(THIRD)
    api.put("nodes", a_node())
    async with EightCards(host, api, kubelet) as plugin:
        await plugin.serving()
        assert set(UUIDS) - {THIRD} == _seen_by_kubelet(kubelet).keys()
        driver.bring_back(THIRD)
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.offers()


async def test_lost_card_comes_back_after_reset(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """Without a restart and without a new registration, and with the XID that it reported before."""
    async with running(host, api, kubelet) as plugin:
        driver.report_xid(THIRD, 79)
        await plugin.offers(THIRD)
        driver.lose(THIRD)
        await plugin.until(lambda: _faults(api).get(THIRD) == ["lost", "xid"])
        driver.bring_back(THIRD)
        await plugin.offers()
        await plugin.until(lambda: reasons(api)[-1] == "DeviceHealthy")

    assert {} == _faults(api)
    assert 1 == len(kubelet.registrations)


async def test_card_that_cannot_be_read_is_on_probation_afterwards(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """An error that comes and goes does not make the device flap."""
    async with running(host, api, kubelet, "--health-probation=6s") as plugin:
        driver.fail(999, THIRD)
        await plugin.offers(THIRD)
        driver.recover(THIRD)
        recovered = time.monotonic()
        await plugin.offers()

    assert time.monotonic() - recovered > 4


async def test_xid_of_a_program_passes_and_that_of_the_card_needs_the_operators_word(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """94 is contained to its program. 48 stays until an operator names the card, and the word is removed."""
    async with running(host, api, kubelet, "--health-probation=3s") as plugin:
        driver.report_xid(UUIDS[0], 94)
        driver.report_xid(THIRD, 48)
        await plugin.until(lambda: {UUIDS[0], THIRD} <= unhealthy_in_events(api))
        await plugin.offers(THIRD)
        change_node(api, "annotations", RESTORE, THIRD)
        await plugin.offers()
        await plugin.until(lambda: RESTORE not in api.annotations("nodes", "", NODE))

    assert {} == _faults(api)


async def test_card_that_is_reset_during_a_pause_is_healthy_afterwards(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """An uncorrectable memory error stays until then; the reset needs the driver to itself, and sets the count to 0."""
    async with running(host, api, kubelet) as plugin:
        driver.report_ecc_error(THIRD)
        await plugin.offers(THIRD)
        change_node(api, "annotations", PAUSE, "reset of GPU 3")
        await plugin.offers(*UUIDS)
        await plugin.until(lambda: driver.clients() == ())
        driver.reset(THIRD)
        change_node(api, "annotations", PAUSE, None)
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.offers()

    assert {} == _faults(api)


async def test_link_that_breaks_makes_its_card_unhealthy_until_it_is_mended(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """A link that was never up is no fault."""
    driver.connect(THIRD, UUIDS[4], 2)
    driver.connect(UUIDS[5], UUIDS[6], 2)
    driver.break_link(UUIDS[5], 1)
    async with running(host, api, kubelet, "--health-probation=1s") as plugin:
        driver.break_link(THIRD, 1)
        await plugin.offers(THIRD)
        await plugin.until(lambda: any("NVLinks are down: 1" in event["message"] for event in events(api)))
        driver.mend_link(THIRD, 1)
        await plugin.offers()


async def test_faults_survive_the_process(host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver) -> None:
    """A plugin that is killed does not make a broken card healthy."""
    async with running(host, api, kubelet) as first:
        driver.report_xid(THIRD, 48)
        await first.offers(THIRD)
        await first.kill()
    async with EightCards(host, api, kubelet) as second:
        await second.until(lambda: len(kubelet.registrations) == 2)
        await second.offers(THIRD)
        change_node(api, "annotations", RESTORE, "all")
        await second.offers()


async def test_nvml_that_hangs_costs_no_allocation(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """Forty containers start while NVML hangs, and the plugin goes on when NVML answers."""
    async with running(host, api, kubelet) as plugin:
        before = plugin.threads()
        driver.hang()
        await plugin.offers(*UUIDS)
        for number in range(40):
            await _start_container(plugin, UUIDS[number % 8], name=f"p{number}")
        # Only the pool for files may have grown, to its size.
        assert plugin.threads() - before <= (os.cpu_count() or 1) + 4
        driver.recover()
        await plugin.offers()
        await plugin.until(lambda: {"DriverSilent", "DriverBack"} <= set(reasons(api)))


async def test_plugin_that_starts_while_nvml_hangs_lets_containers_restart(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """It offers the recorded devices as unhealthy, says why, and takes the driver over when it answers."""
    async with running(host, api, kubelet) as plugin:
        await _allocate(plugin, UUIDS[4], "p")
        await kubelet.pre_start(f"{UUIDS[4]}-0")
        await _allocate(plugin, UUIDS[5], "q")
        specs = plugin.specs()
    [region] = (host / "hook/vgpu/containers/uid-p_main").glob("*.cache")
    region.write_bytes(b"what the last run left")
    driver.hang(call="nvmlDeviceGetCount_v2")
    async with EightCards(host, api, kubelet) as plugin:
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.offers(*UUIDS)
        status, text = await plugin.get("/readyz")
        assert (503, True) == (status, text.startswith("the driver is silent: NVML: device_count did not return"))
        assert "hami_device_plugin_driver_available 0.0" in (await plugin.get("/metrics"))[1]
        await plugin.until(lambda: "DriverSilent" in reasons(api))
        await kubelet.pre_start(f"{UUIDS[4]}-0")
        assert (b"", specs) == (region.read_bytes().rstrip(b"\0"), plugin.specs())
        with pytest.raises(Exception, match="container main has not started before, and the driver is silent"):
            await kubelet.pre_start(f"{UUIDS[5]}-0")
        await asyncio.sleep(4)
        assert plugin.events().count("Waiting for the driver") <= 2  # it is silent, and it is still held

        driver.recover()
        await plugin.until(lambda: len(kubelet.registrations) == 3)
        await plugin.offers()
        await kubelet.pre_start(f"{UUIDS[5]}-0")
        await plugin.until(lambda: "DriverBack" in reasons(api))


async def test_hang_of_one_card_is_that_cards(host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver) -> None:
    """The other seven stay as they were, though they cannot be read while the call hangs."""
    async with running(host, api, kubelet, "--health-probation=1s") as plugin:
        driver.hang(THIRD)
        await plugin.offers(THIRD)
        await asyncio.sleep(4)
        await plugin.offers(THIRD)
        driver.recover(THIRD)
        await plugin.offers()

        await plugin.until(lambda: {"DeviceUnhealthy", "DeviceHealthy"} <= set(reasons(api)))


@pytest.mark.parametrize("version", ["570.124.06", "580.95.05"])
async def test_driver_upgrade_needs_no_restart(
    version: str, host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """The driver is unloaded while the label of the GPU Operator says so, and taken over when it is back."""
    async with running(host, api, kubelet) as plugin:
        change_node(api, "labels", OPERATOR_LABEL, "paused-for-driver-upgrade")
        await plugin.offers(*UUIDS)
        await plugin.until(lambda: driver.clients() == ())
        driver.unload()
        status, text = await plugin.get("/readyz")
        assert (503, f"the driver is let go: label {OPERATOR_LABEL}=paused-for-driver-upgrade\n") == (status, text)
        change_node(api, "labels", OPERATOR_LABEL, "true")
        await plugin.until(lambda: any("Driver Not Loaded" in str(line.get("because")) for line in plugin.logs))
        driver.load(version)
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.offers()
        await _start_container(plugin, UUIDS[0])

        assert plugin.process.returncode is None
        assert ["DriverReleased", "DriverBack"] == reasons(api)


@pytest.mark.parametrize(("kind", "key"), [("labels", "nvidia.com/gpu.deploy.client"), ("annotations", PAUSE)])
async def test_nobody_holds_the_driver_while_it_is_unloaded(
    kind: str, key: str, host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """A plugin that starts meanwhile does not open it either, and a container that restarts is prepared as ever."""
    async with running(host, api, kubelet) as plugin:
        change_node(api, kind, key, "paused-for-mig-change")
        await plugin.until(lambda: driver.clients() == ())
        # It closes the driver, and then unloads the library.
        maps = Path(f"/proc/{plugin.process.pid}/maps")
        await plugin.until(lambda: "libnvidia-ml" not in maps.read_text())
        await _start_container(plugin, UUIDS[0])
    async with EightCards(host, api, kubelet) as second:
        await second.until(lambda: "Waiting for the driver" in second.events())
        await asyncio.sleep(1)
        assert driver.clients() == ()
        driver.unload()
        driver.load()
        change_node(api, kind, key, None)
        await second.until(lambda: len(kubelet.registrations) == 2)
        await second.offers()


async def test_driver_that_goes_without_a_word_is_taken_over_when_it_is_back(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """As after a forced unload, or NVML that fails for every card."""
    async with running(host, api, kubelet) as plugin:
        driver.unload(despite_clients=True)
        await plugin.offers(*UUIDS)
        driver.load("580.95.05")
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.offers()

    assert ["DriverGone", "DriverBack"] == reasons(api)


async def test_plugin_that_starts_before_the_driver_waits_and_says_so_once(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """It takes the driver over without a restart."""
    driver.unload()
    api.put("nodes", a_node())
    async with EightCards(host, api, kubelet, "--fail-on-init-error=false") as plugin:
        await plugin.until(lambda: "Waiting for the driver" in plugin.events())
        await asyncio.sleep(4)
        status, text = await plugin.get("/readyz")
        assert (503, True) == (status, "Driver Not Loaded" in text)
        assert 1 == plugin.events().count("Waiting for the driver")
        driver.load()
        await plugin.serving()
        await plugin.offers()


async def test_node_without_devices_costs_nothing(
    host: Path, api: ApiServer, kubelet: Kubelet, driver: FakeDriver
) -> None:
    """The plugin says so, writes nothing, and does not hold the driver; cards that are added are offered."""
    api.put("nodes", a_node())
    header = HARDWARE.splitlines(keepends=True)[0]
    async with EightCards(host, api, kubelet, hardware=header) as plugin:
        await plugin.until(lambda: "Waiting for the driver" in plugin.events())
        await asyncio.sleep(2)
        assert (503, "the driver shows no device\n") == await plugin.get("/readyz")
        await plugin.until(lambda: driver.clients() == ())  # Each look for devices holds the driver for a moment.
        assert ([], 1) == (api.patches, plugin.events().count("Waiting for the driver"))
        (host / "hardware/devices.csv").write_text(HARDWARE)
        await plugin.serving()
        await plugin.offers()


async def _start_container(plugin: EightCards, uuid: str, name: str = "p") -> None:
    """Allocate a share of a device for a new Pod and start its container."""
    async with asyncio.timeout(20):
        await _allocate(plugin, uuid, name)
        await plugin.kubelet.pre_start(f"{uuid}-0")
    plugin.kubelet.forget(f"uid-{name}")
    plugin.api.remove("pods", "default", name)


async def _allocate(plugin: EightCards, uuid: str, name: str) -> None:
    """Allocate a share of a device for a new Pod."""
    plugin.api.put("pods", a_pod(name, f"{uuid},NVIDIA,700,5:;", "main=1"))
    await plugin.kubelet.allocate(f"uid-{name}", name, "main", f"{uuid}-0")


def _seen_by_kubelet(kubelet: Kubelet) -> dict[str, bool]:
    return _by_uuid(kubelet.devices)


def _by_uuid(health_by_replica: dict[str, str]) -> dict[str, bool]:
    return {replica.rpartition("-")[0]: health == "Healthy" for replica, health in health_by_replica.items()}


def _annotated(api: ApiServer) -> dict[str, bool]:
    devices = json.loads(api.annotations("nodes", "", NODE).get(REGISTER, "[]"))
    return {device["id"]: device.get("health", False) for device in devices}


def _faults(api: ApiServer) -> dict[str, Any]:
    found = json.loads(api.annotations("nodes", "", NODE).get(FAULTS, "{}"))
    return {uuid: sorted(causes) for uuid, causes in found.items()}


def _false(uuids: tuple[str, ...]) -> dict[str, bool]:
    return dict.fromkeys(uuids, False)
