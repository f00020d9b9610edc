"""
The plugin as a process on a Node where containers get devices and driver by CDI alone.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_generator import FakeGenerator
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, FAKE_DRIVER, NODE, T4, PluginProcess, a_node, a_pod, needs_fake_driver

pytestmark = needs_fake_driver

DEVICE_LIST = "hami.io/node-nvidia-device-list"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libcuda.so.570.124.06"


@pytest.fixture
def fake(host: Path) -> FakeGenerator:
    """A driver's root with the fake driver and the stand-in for nvidia-ctk."""
    return FakeGenerator(host, FAKE_DRIVER / "libnvidia-ml.so.1")


@asynccontextmanager
async def a_plugin(fake: FakeGenerator, api: ApiServer, kubelet: Kubelet, *flags: str) -> AsyncIterator[PluginProcess]:
    """Serve with *fake*."""
    api.put("nodes", a_node())
    async with PluginProcess(fake.host, api, kubelet, *fake.flags, *flags) as plugin:
        yield await plugin.serving()


async def test_container_needs_no_runtime_of_nvidias(fake: FakeGenerator, api: ApiServer, kubelet: Kubelet) -> None:
    """Its spec has the driver's files, its own device and no other, and our edits over them."""
    api.put("pods", a_pod("p", f"{T4},NVIDIA,2000,20:;", "main=1"))
    async with a_plugin(fake, api, kubelet) as plugin:
        answer = await kubelet.allocate("uid-p", "p", "main", f"{T4}-0")
        await kubelet.pre_start(f"{T4}-0")
        edits = plugin.specs()[answer.cdi_devices[0].name]
        environment = plugin.environment(answer)

    mounts = {mount["containerPath"]: mount["hostPath"] for mount in edits["mounts"]}
    assert ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"] == [node["path"] for node in edits["deviceNodes"]]
    assert f"/run/nvidia/driver{LIBRARY}" == mounts[LIBRARY]
    assert mounts["/etc/ld.so.preload"] == f"{fake.host}/hook/vgpu/ld.so.preload"
    assert ("void", T4, "2000m") == tuple(
        environment[name] for name in ("NVIDIA_VISIBLE_DEVICES", "HAMI_DEVICE_UUIDS", "CUDA_DEVICE_MEMORY_LIMIT_0")
    )
    hooks = {Path(hook["path"]).read_bytes() for hook in edits["hooks"]}
    assert {b"the hook"} == hooks


async def test_way_of_the_node_is_said_everywhere(fake: FakeGenerator, api: ApiServer, kubelet: Kubelet) -> None:
    """In the log, /readyz, the Node's annotation and a metric."""
    expected = "cdi-cri: containerd://2.1.8 and kubelet v1.34.4 have CDI, and the driver is described"
    async with a_plugin(fake, api, kubelet) as plugin:
        await plugin.until(lambda: api.annotations("nodes", "", NODE).get(DEVICE_LIST) == expected)
        await plugin.readiness(200)
        _, ready = await plugin.get("/readyz")
        _, metrics = await plugin.get("/metrics")

    told = f"ok\nthis is a Node of kind plugin\ndevices reach containers by {expected}\n"
    assert told == ready.partition("memory is limited by ")[0]
    assert 'hami_device_plugin_device_list_strategy{strategy="cdi-cri"} 1.0' in metrics
    assert 'hami_device_plugin_device_list_strategy{strategy="envvar"} 0.0' in metrics
    assert "Devices reach containers" in plugin.events()


async def test_fallback_is_an_event_of_the_node(fake: FakeGenerator, api: ApiServer, kubelet: Kubelet) -> None:
    """With the generator's own words. NVIDIA's runtime then adds devices and driver."""
    fake.does("fail Driver/library version mismatch")
    api.put("pods", a_pod("p", f"{A100},NVIDIA,2000,20:;", "main=1"))
    async with a_plugin(fake, api, kubelet) as plugin:
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        environment = plugin.environment(answer)
        await plugin.until(lambda: any(kind == "events" for kind, *_ in api.objects))
        [event] = [found for (kind, *_), found in api.objects.items() if kind == "events"]

    assert A100 == environment["NVIDIA_VISIBLE_DEVICES"]
    assert "NativeCDINotUsed" == event["reason"]
    assert "failed: Driver/library version mismatch" in event["message"]


async def test_configured_way_that_does_not_work_is_not_replaced(
    fake: FakeGenerator, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet gets no devices, and /readyz has the reason."""
    fake.does("fail Driver/library version mismatch")
    api.put("nodes", a_node())
    async with PluginProcess(fake.host, api, kubelet, *fake.flags, "--device-list-strategy=cdi-cri") as plugin:
        await plugin.until(lambda: "Cannot serve devices" in plugin.events())
        status, reason = await plugin.get("/readyz")

    assert 503 == status
    assert reason.startswith("--device-list-strategy=cdi-cri: ")
    assert reason.endswith("failed: Driver/library version mismatch\n")
    assert not kubelet.registrations


@pytest.mark.parametrize(
    ("strategy", "is_named"), [("cdi-annotations", False), ("cdi-annotations,cdi-cri", True)], ids=["alone", "both"]
)
async def test_device_may_be_named_in_an_annotation(
    fake: FakeGenerator, api: ApiServer, kubelet: Kubelet, strategy: str, is_named: bool
) -> None:
    """For runtimes that read no names from the kubelet. The checkpoint still tells whose answer it was."""
    api.put("pods", a_pod("p", f"{A100},NVIDIA,2000,20:;", "main=1"))
    flags = (f"--device-list-strategy={strategy}", "--cdi-annotation-prefix=cdi.example.com/")
    async with a_plugin(fake, api, kubelet, *flags) as plugin:
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        specs = plugin.specs()

    [(key, name)] = answer.annotations.items()
    assert key.startswith("cdi.example.com/nvidia-device-plugin_")
    assert "/dev/nvidia0" in json.dumps(specs[name])
    assert ([name] if is_named else []) == [device.name for device in answer.cdi_devices]


async def test_container_restarts_with_the_driver_that_is_there(
    fake: FakeGenerator, api: ApiServer, kubelet: Kubelet
) -> None:
    """A plugin that was killed meanwhile describes it again at its start."""
    api.put("pods", a_pod("p", f"{A100},NVIDIA,2000,20:;", "main=1"))
    async with a_plugin(fake, api, kubelet) as plugin:
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        await plugin.kill()
    fake.install("580.95.05")
    (fake.host / "hardware/conditions").write_text("driver version 580.95.05\n")
    kubelet.devices.clear()
    async with a_plugin(fake, api, kubelet) as plugin:
        await plugin.until(lambda: bool(kubelet.devices))
        await kubelet.pre_start(f"{A100}-0")
        edits = plugin.specs()[answer.cdi_devices[0].name]

    assert "libcuda.so.580.95.05" in json.dumps(edits["mounts"])
    assert "570.124.06" not in json.dumps(edits)
