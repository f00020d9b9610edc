"""
A plugin killed at any instruction: the kubelet's next attempt succeeds, and nothing is left behind.
"""

import asyncio
import json
import signal
from pathlib import Path

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_child import call_in_child
from device_plugin_crash import DEVICE, DIRECTORY, REGION, STEPS, prepare, prepare_until
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, NODE, PluginProcess, a_node, a_pod, needs_fake_driver

from hami_device_plugin.adapters.cdi_files import remove_unfinished
from hami_device_plugin.decide.allocate.cdi.spec import KIND
from hamicommon.runtime.host.removal import delete_some
from hamicommon.wire.limits_file import decode_limits_file


@pytest.mark.parametrize("step", STEPS)
def test_container_is_prepared_by_the_next_process_after_a_kill(step: str, host: Path) -> None:
    """There is no spec or a whole one; the files are the same in the end, and nothing else is left."""
    directory = host / DIRECTORY
    directory.mkdir(parents=True)
    (directory / REGION).write_bytes(b"the last run's")
    (directory / "left.tmp").touch()
    assert -signal.SIGKILL == call_in_child(prepare_until, host, step)
    assert all(json.loads(path.read_bytes())["kind"] == KIND for path in (host / "cdi").glob("*.json"))

    remove_unfinished(host / "cdi")
    prepare(host)

    assert [host / f"cdi/hami.io-vgpu_uid-p_{DEVICE}.json"] == list((host / "cdi").iterdir())
    [device] = json.loads((host / f"cdi/hami.io-vgpu_uid-p_{DEVICE}.json").read_bytes())["devices"]
    assert "CUDA_DEVICE_MEMORY_LIMIT_0=700m" in device["containerEdits"]["env"]
    assert [REGION, "limits"] == sorted(path.name for path in directory.iterdir())
    limits = decode_limits_file((directory / "limits").read_bytes())
    assert [700 << 20] == [device.memory_bytes for device in limits.devices.values()]
    assert not any((directory / REGION).read_bytes())
    assert 0o755 == directory.stat().st_mode & 0o777
    while delete_some(directory.parent, 100):
        pass
    assert [directory] == list(directory.parent.iterdir())


@needs_fake_driver
async def test_process_killed_between_allocate_and_start_is_replaced(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet's checkpoint has all that the next process needs."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as first:
        await first.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await first.kill()
    async with PluginProcess(host, api, kubelet) as second:
        await second.until(lambda: len(kubelet.registrations) == 2 and len(kubelet.devices) == 6)
        await kubelet.pre_start(f"{A100}-0")

        assert "700m" == second.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]


@needs_fake_driver
async def test_process_killed_while_it_asks_for_the_owner_prepares_nothing(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """There is no spec and no region."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as first:
        await first.serving()
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        lists = kubelet.lists
        kubelet.held_lists.clear()
        started = asyncio.ensure_future(kubelet.pre_start(f"{A100}-0"))
        await first.until(lambda: kubelet.lists > lists)
        await first.kill()
        await asyncio.gather(started, return_exceptions=True)

        assert {} == first.specs()
        assert [] == list((host / "hook/vgpu/containers").glob("*/*.cache"))


@needs_fake_driver
async def test_pod_of_a_process_killed_before_it_confirmed_is_confirmed_by_the_next(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """
    The container may run already, so the kubelet does not call again; the spec on disk shows that the mark is missing.
    """
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as first:
        await first.serving()
        await first.until(lambda: "hami.io/node-nvidia-register" in api.annotations("nodes", "", NODE))
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        api.gate.clear()
        api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
        started = asyncio.ensure_future(kubelet.pre_start(f"{A100}-0"))
        await first.until(lambda: len(first.specs()) == 1)
        await first.kill()
        await asyncio.gather(started, return_exceptions=True)
    api.gate = asyncio.Event()
    api.gate.set()
    assert "allocating" == api.annotations("pods", "default", "p")["hami.io/bind-phase"]
    async with PluginProcess(host, api, kubelet) as second:
        await second.until(lambda: api.annotations("pods", "default", "p")["hami.io/bind-phase"] == "success")
