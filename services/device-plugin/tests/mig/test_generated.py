"""
NVIDIA's own generator describes MIG instances, and a container gets the edits of exactly its instance.

The plugin is a process with the `nvidia-ctk` of the image, over the fake driver and what it shows in /proc.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_generator import FakeGenerator, real_generator
from device_plugin_kubelet import RESOURCE, Kubelet
from device_plugin_mig_process import (
    PLAIN_T4,
    SMALL,
    WHOLE_A100,
    a_plugin,
    a_promised_pod,
    asked_of_the_driver,
    promised,
)
from device_plugin_process import A100, PluginProcess, a_node, a_pod, needs_fake_driver

from testbed.driver.mig.files import device_files, show_mig

pytestmark = needs_fake_driver

CONTROL = ["/dev/nvidiactl", "/dev/nvidia-uvm"]
HOST_ROOT = "/run/nvidia/driver"


@pytest.fixture
def real(host: Path, may_mount: None) -> FakeGenerator:
    """NVIDIA's generator, and the device files that a driver has before an instance is used."""
    found = real_generator(host)
    found.make_device_files("nvidia0", "nvidiactl", "nvidia-uvm")
    return found


def made_by_the_driver(real: FakeGenerator, files: Sequence[str]) -> None:
    """Let the host have the device files of an instance."""
    real.make_device_files(*(path.removeprefix("/dev/") for path in files[1:]))


def nodes_of(edits: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the device nodes in *edits* by path, without those of every container."""
    return {node["path"]: node for node in edits["deviceNodes"] if node["path"] not in CONTROL}


async def started(plugin: PluginProcess, kubelet: Kubelet, name: str, replica: str, resource: str) -> dict[str, Any]:
    """Start a Pod's container, and return its edits."""
    answer = await kubelet.allocate(f"uid-{name}", name, "main", replica, resource=resource)
    await kubelet.pre_start(replica, resource=resource)
    found: dict[str, Any] = plugin.specs()[answer.cdi_devices[0].name]
    return found


async def test_new_instance_is_in_the_drivers_part(
    host: Path, api: ApiServer, kubelet: Kubelet, real: FakeGenerator
) -> None:
    """The generator runs again before the container starts. Each container has its own instance's files alone."""
    api.put("nodes", a_node())
    for number, name in enumerate("pq"):
        api.put("pods", a_promised_pod(name, start=number))
        # The driver gives the first two instances of this size these numbers.
        made_by_the_driver(real, device_files(0, 7 + number))
    plugin = a_plugin(host, api, kubelet, *real.flags)
    plugin.proc = show_mig(host / "proc")
    async with plugin:
        await plugin.serving()
        edits = [await started(plugin, kubelet, name, f"{A100}-{n}", RESOURCE) for n, name in enumerate("pq")]
        expected = [device_files(0, promised(api, name)["gpuInstanceID"]) for name in "pq"]

    assert [device_files(0, 7), device_files(0, 8)] == expected == [list(nodes_of(each)) for each in edits]
    assert [f"{HOST_ROOT}{path}" for path in expected[1]] == [node["hostPath"] for node in nodes_of(edits[1]).values()]
    assert "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06" in {mount["containerPath"] for mount in edits[1]["mounts"]}
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits[1]["env"]


async def test_file_that_the_driver_has_not_made_yet_reaches_the_container_by_its_numbers(
    host: Path, api: ApiServer, kubelet: Kubelet, real: FakeGenerator
) -> None:
    """The generator leaves it out, and the runtime can make it. The GPU's own file is the host's."""
    api.put("nodes", a_node())
    api.put("pods", a_promised_pod("p"))
    plugin = a_plugin(host, api, kubelet, *real.flags)
    plugin.proc = show_mig(host / "proc")
    async with plugin:
        await plugin.serving()
        found = nodes_of(await started(plugin, kubelet, "p", f"{A100}-0", RESOURCE))
        expected = device_files(0, promised(api, "p")["gpuInstanceID"])

    assert expected == list(found)
    assert f"{HOST_ROOT}/dev/nvidia0" == found["/dev/nvidia0"]["hostPath"]
    for path in expected[1:]:
        minor = int(path.removeprefix("/dev/nvidia-caps/nvidia-cap"))
        assert {"path": path, "type": "c", "major": 508, "minor": minor} == found[path]


@pytest.mark.parametrize("strategy", ["single", "mixed"])
async def test_existing_instance_is_in_the_drivers_part(
    host: Path, api: ApiServer, kubelet: Kubelet, real: FakeGenerator, strategy: str
) -> None:
    """Under each strategy; the other instance's files are not in it."""
    api.put("nodes", a_node())
    for number in (7, 8):
        made_by_the_driver(real, device_files(0, number))
    plugin = PluginProcess(host, api, kubelet, f"--mig-strategy={strategy}", *real.flags)
    plugin.hardware = WHOLE_A100 + (PLAIN_T4 if strategy == "mixed" else "")
    plugin.proc = show_mig(host / "proc")
    plugin.write_hardware()
    uuids = asked_of_the_driver(host, "create_instances([0, 1])")
    api.put("pods", a_pod("p", f"{uuids[1]},NVIDIA,4864,100:;", "main=1"))
    resource = SMALL if strategy == "mixed" else RESOURCE
    async with plugin:
        await plugin.serving()
        await plugin.until(lambda: strategy == "single" or bool(kubelet.others))
        found = nodes_of(await started(plugin, kubelet, "p", uuids[1], resource))

    assert device_files(0, 8) == list(found)


async def test_instance_whose_capabilities_the_driver_does_not_list_keeps_its_container_waiting(
    host: Path, api: ApiServer, kubelet: Kubelet, real: FakeGenerator
) -> None:
    """A container that started without them could not use CUDA. The kubelet shows the reason."""
    api.put("nodes", a_node())
    api.put("pods", a_promised_pod("p"))
    plugin = a_plugin(host, api, kubelet, *real.flags)
    plugin.proc = show_mig(host / "proc")
    os.truncate(host / "proc/driver/nvidia-caps/mig-minors", 0)
    async with plugin:
        await plugin.serving()
        with pytest.raises(Exception, match="failed to get GI cap device path: invalid MIG capability path gpu0/gi7"):
            await started(plugin, kubelet, "p", f"{A100}-0", RESOURCE)
        assert {} == plugin.specs()
