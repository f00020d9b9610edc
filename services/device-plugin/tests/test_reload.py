"""
Files that change while the plugin runs, as a ConfigMap's do in a mount.
"""

import asyncio
import json
from pathlib import Path

from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import (
    A100,
    DEADLINE_SECONDS,
    DEVICE_CONFIG,
    NODE,
    T4,
    PluginProcess,
    a_node,
    a_pod,
    needs_fake_driver,
)

from testbed import configmaps

pytestmark = needs_fake_driver

REGISTER = "hami.io/node-nvidia-register"
REFUSED = "New device config not used, the old one stays"


class Mounted(PluginProcess):
    """The plugin with both files in mounts."""

    def __init__(self, host: Path, api: ApiServer, kubelet: Kubelet, *flags: str) -> None:
        self.mount = host / "etc"
        self.configure()
        paths = (f"--config-file={self.mount}/device-config.yaml", f"--node-config-file={self.mount}/config.json")
        super().__init__(host, api, kubelet, *paths, *flags)

    def configure(self, device_config: str = DEVICE_CONFIG, **node: object) -> None:
        """Mount another device config and other overrides of *node*."""
        overrides = json.dumps({"nodeconfig": [{"name": NODE, **node}]})
        configmaps.mount(self.mount, {"device-config.yaml": device_config, "config.json": overrides})

    async def metric(self, line: str) -> None:
        """Wait until *line* is among the metrics."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while line not in (await self.get("/metrics"))[1].splitlines():  # noqa: ASYNC110 - the process says no more
                await asyncio.sleep(0.05)


async def test_what_containers_get_changes_without_a_word_to_the_kubelet(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """No Pod is rejected, and a running container keeps its grant."""
    api.put("nodes", a_node())
    async with Mounted(host, api, kubelet) as plugin:
        await plugin.serving()
        before = await kubelet.allocate("uid-a", "a", "main", f"{A100}-0")
        plugin.configure(DEVICE_CONFIG.replace("LogLevel: 1", "LogLevel: 4"))
        await plugin.until(lambda: "Device config changed" in plugin.events())
        after = await kubelet.allocate("uid-b", "b", "main", f"{A100}-1")

        assert ("1", "4") == tuple(answer.envs["LIBCUDA_LOG_LEVEL"] for answer in (before, after))
        assert (1, 6) == (len(kubelet.registrations), len(kubelet.devices))
        assert "Starting a new session" not in plugin.events()


async def test_other_replicas_are_offered_over_the_stream_that_is_there(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet and the Node get them, after a change of either file."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with Mounted(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        plugin.configure(devicesplitcount=5, devicememoryscaling=2, filterdevices={"uuid": [T4]})
        await plugin.until(lambda: {f"{A100}-{n}" for n in range(5)} == kubelet.devices.keys())
        await plugin.until(lambda: [(A100, 5, 81920)] == inventory(api))
        await kubelet.pre_start(f"{A100}-0")

        assert "700m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]
        assert 1 == len(kubelet.registrations)


async def test_another_resource_is_registered_by_a_new_session(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The kubelet knows a plugin by its resource and its socket, and both change."""
    api.put("nodes", a_node())
    async with Mounted(host, api, kubelet) as plugin:
        await plugin.serving()
        plugin.configure(DEVICE_CONFIG.replace("nvidia.com/gpu", "example.com/vgpu"))
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.readiness(200)

        assert ("nvidia-vgpu.sock", "example.com/vgpu") == (
            kubelet.registrations[1].endpoint,
            kubelet.registrations[1].resource_name,
        )
        assert not kubelet.socket.with_name("nvidia-gpu.sock").exists()
        await plugin.metric('hami_device_plugin_restarts_total{cause="config"} 1.0')


async def test_bad_configuration_is_refused_with_every_error(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """Of both files at once; the old one stays until a valid one arrives."""
    api.put("nodes", a_node())
    async with Mounted(host, api, kubelet) as plugin:
        await plugin.serving()
        plugin.configure("nvidia: {deviceSplitCount: 0, memoryFactor: x}\n", devicesplitcount="many")
        await plugin.metric("hami_device_config_refused 1.0")
        [refusal] = [line for line in plugin.logs if line["event"] == REFUSED]
        assert 6 == len(kubelet.devices)

        plugin.configure(devicesplitcount=4)
        await plugin.metric("hami_device_config_refused 0.0")
        await plugin.until(lambda: len(kubelet.devices) == 8)

    files = [f"{plugin.mount}/device-config.yaml", f"{plugin.mount}/config.json"]
    assert files == refusal["files"]
    assert [
        f"{files[0]}: nvidia.memoryFactor",
        f"{files[0]}: nvidia.deviceSplitCount",
        f"{files[1]}: nodeconfig[0]",
    ] == [problem.partition(": line")[0].partition(".devicesplitcount")[0] for problem in refusal["problems"]]


async def test_node_that_is_left_without_a_device_says_so_until_it_has_one(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Such a file is valid and takes effect; the next one ends the pause."""
    api.put("nodes", a_node())
    async with Mounted(host, api, kubelet) as plugin:
        await plugin.serving()
        plugin.configure(filterdevices={"uuid": [A100, T4]})
        await plugin.until(lambda: "Cannot serve devices" in plugin.events())
        problem = "no device to offer: the driver shows 2, all filtered, unreadable or without memory\n"
        assert (503, problem) == await plugin.get("/readyz")

        plugin.configure()
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.readiness(200)


def inventory(api: ApiServer) -> list[tuple[str, int, int]]:
    """Return UUID, replicas and MiB of each device in the Node's annotation."""
    found = json.loads(api.annotations("nodes", "", NODE)[REGISTER])
    return [(device["id"], device["count"], device["devmem"]) for device in found]


async def test_replicas_that_the_kubelet_does_not_read_are_refused_and_the_old_ones_stay(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet takes lists of 4 MiB; from a longer one it would have nothing, again and again."""
    api.put("nodes", a_node())
    async with Mounted(host, api, kubelet) as plugin:
        await plugin.serving()
        plugin.configure(devicesplitcount=30_000)
        await plugin.metric("hami_device_config_refused 1.0")
        refusal = next(line for line in plugin.logs if line["event"] == REFUSED)

        assert "30000 replicas of each of 2 devices" in refusal["problems"][0]
        assert "write at most 29959" in refusal["problems"][0]
        assert 6 == len(kubelet.devices)
        assert "Starting a new session" not in plugin.events()


async def test_replicas_that_the_kubelet_does_not_read_are_named_at_the_start(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The probe says what to write, and a good file ends the pause."""
    api.put("nodes", a_node())
    plugin = Mounted(host, api, kubelet)
    plugin.configure(devicesplitcount=30_000)
    async with plugin:
        await plugin.until(lambda: "Cannot serve devices" in plugin.events())
        status, text = await plugin.get("/readyz")
        assert (503, True) == (status, "write at most 29959" in text)

        plugin.configure(devicesplitcount=3)
        await plugin.until(lambda: len(kubelet.devices) == 6)
