"""
The plugin's process beside MIG instances that an administrator created.
"""

import asyncio
import json
from pathlib import Path

from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_mig_process import CUT_A100, INSTANCES, PLAIN_T4, SMALL
from device_plugin_process import A100, NODE, T4, PluginProcess, a_node, a_pod, needs_fake_driver

pytestmark = needs_fake_driver

REGISTER = "hami.io/node-nvidia-register"


async def test_single_registers_each_instance_once_under_its_uuid(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """It is a device for one container, unscaled."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, "--mig-strategy=single")
    plugin.hardware = CUT_A100
    async with plugin:
        await plugin.serving()
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))

    assert dict.fromkeys(INSTANCES, "Healthy") == kubelet.devices
    registered = json.loads(api.annotations("nodes", "", NODE)[REGISTER])
    assert [(uuid, 1, 4864, 100) for uuid in INSTANCES] == [
        (device["id"], device["count"], device["devmem"], device["devcore"]) for device in registered
    ]


async def test_single_gives_the_instance_that_the_scheduler_granted(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Whichever ID the kubelet picked; without limits and without the library."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, "--mig-strategy=single")
    plugin.hardware = CUT_A100
    async with plugin:
        await plugin.serving()
        api.put("pods", a_pod("p", f"{INSTANCES[1]},NVIDIA,4864,100:;", "main=1"))
        answer = await kubelet.allocate("uid-p", "p", "main", INSTANCES[0])
        await kubelet.pre_start(INSTANCES[0])

        edits = plugin.specs()[answer.cdi_devices[0].name]

    assert INSTANCES[1] == dict(entry.split("=", 1) for entry in edits["env"])["NVIDIA_VISIBLE_DEVICES"]
    assert [] == [entry for entry in edits["env"] if entry.startswith("CUDA_")]
    assert [] == edits.get("mounts", [])


async def test_single_refuses_a_node_of_both_kinds_and_says_why(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The kubelet hears of no device."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, "--mig-strategy=single")
    plugin.hardware = CUT_A100 + PLAIN_T4
    async with plugin:
        await plugin.until(lambda: "Cannot serve devices" in plugin.events())

        [error] = [line["error"] for line in plugin.logs if line["event"] == "Cannot serve devices"][:1]
    assert "needs instances of one size on every GPU" in error
    assert [] == kubelet.registrations


async def test_mixed_registers_each_size_as_its_resource(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """A GPU without MIG is shared as usual; the inventory has only that one."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, "--mig-strategy=mixed")
    plugin.hardware = CUT_A100 + PLAIN_T4
    async with plugin:
        await plugin.serving()
        await plugin.until(lambda: bool(kubelet.others))
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))

    assert {SMALL: dict.fromkeys(INSTANCES, "Healthy")} == kubelet.others
    assert {f"{T4}-{number}" for number in range(3)} == set(kubelet.devices)
    assert [T4] == [device["id"] for device in json.loads(api.annotations("nodes", "", NODE)[REGISTER])]
    assert {"nvidia-gpu.sock", "nvidia-mig-1g.5gb.sock"} == {request.endpoint for request in kubelet.registrations}


async def test_mixed_gives_the_instance_that_the_kubelet_picked(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """No scheduler of HAMi's took part, so the Pod has no annotation, and it gets none."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, "--mig-strategy=mixed")
    plugin.hardware = CUT_A100 + PLAIN_T4
    async with plugin:
        await plugin.serving()
        await plugin.until(lambda: bool(kubelet.others))
        pod = a_pod("p", "", "main")
        pod["metadata"]["annotations"] = {}
        api.put("pods", pod)
        answer = await kubelet.allocate("uid-p", "p", "main", INSTANCES[1], resource=SMALL)
        await kubelet.pre_start(INSTANCES[1], resource=SMALL)

        env = plugin.environment(answer)
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))

    assert INSTANCES[1] == env["NVIDIA_VISIBLE_DEVICES"]
    assert {} == api.annotations("pods", "default", "p")


async def test_mixed_offers_the_instances_of_a_faulty_gpu_as_unhealthy(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """An XID of the GPU is one of its instances; another GPU stays healthy."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, "--mig-strategy=mixed")
    plugin.hardware = CUT_A100 + PLAIN_T4
    async with plugin:
        await plugin.serving()
        await plugin.until(lambda: bool(kubelet.others))
        # The plugin subscribes at its first look.
        await asyncio.sleep(3.0)
        with (host / "hardware/xid").open("a") as faults:
            faults.write(f"{A100} 79\n")

        await plugin.until(lambda: set(kubelet.others[SMALL].values()) == {"Unhealthy"})

    assert {"Healthy"} == set(kubelet.devices.values())


async def test_mixed_gives_the_instance_in_the_answer_to_a_runtime_without_cdi(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """PreStartContainer then has nothing to do, also if the kubelet's checkpoint is gone."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet, "--mig-strategy=mixed", "--allocation=lock")
    plugin.hardware = CUT_A100
    async with plugin:
        await plugin.until(lambda: bool(kubelet.others))
        answer = await kubelet.allocate("uid-p", "p", "main", INSTANCES[1], resource=SMALL)
        kubelet.checkpoint.unlink()
        await kubelet.pre_start(INSTANCES[1], resource=SMALL)

    assert {"NVIDIA_VISIBLE_DEVICES": INSTANCES[1]} == dict(answer.envs)
    assert {} == plugin.specs()


async def test_none_offers_a_gpu_in_mig_mode_whole(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """As HAMi and NVIDIA's plugin do."""
    api.put("nodes", a_node())
    plugin = PluginProcess(host, api, kubelet)
    plugin.hardware = CUT_A100
    async with plugin:
        await plugin.serving()

    assert {f"{A100}-{number}" for number in range(3)} == set(kubelet.devices)
