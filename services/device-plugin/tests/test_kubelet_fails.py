"""
The failures of a kubelet and its sockets that Kubernetes' own tests of device plugins provoke.

Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/test/e2e_node/device_plugin_test.go,
https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go
"""

import shutil
from pathlib import Path

import grpc
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, T4, PluginProcess, a_node, a_pod, needs_fake_driver

pytestmark = needs_fake_driver

REFUSALS = (
    'requested API version "v1beta1" is not supported by kubelet. Supported version is ["v1"]',
    'the ResourceName "nvidia.com/gpu" is invalid',
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=["API version", "resource name"])
async def test_registration_that_is_refused_is_repeated(
    refusal: str, host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The log and /readyz say so, and the process goes on: a newer kubelet may come."""
    api.put("nodes", a_node())
    kubelet.refusal = refusal
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.until(lambda: sum(refusal in line.get("error", "") for line in plugin.logs) >= 2)
        assert (503, "not registered with the kubelet\n") == await plugin.get("/readyz")
        kubelet.refusal = ""
        await plugin.serving()
        await plugin.readiness(200)


async def test_removed_socket_is_served_again(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """Somebody cleaned the directory; the kubelet itself did not restart."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        kubelet.socket.with_name("nvidia-gpu.sock").unlink()
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        await plugin.readiness(200)

        assert 6 == len(kubelet.devices)


async def test_kubelet_that_was_down_at_the_start_is_waited_for(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """The plugin serves and registers as soon as there is a kubelet."""
    api.put("nodes", a_node())
    await kubelet.stop()
    shutil.rmtree(kubelet.socket.parent)
    kubelet.socket.parent.mkdir()
    async with PluginProcess(host, api, kubelet, "--allocation=identity") as plugin:
        await plugin.until(lambda: "Devices reach containers" in plugin.events())
        await kubelet.start()
        await plugin.serving()
        await plugin.readiness(200)


async def test_container_keeps_its_device_while_the_plugin_is_gone(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Its spec stays, and the next plugin prepares its restart with the same share."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("p", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as first:
        await first.serving()
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        specs = first.specs()
        await first.terminate()
    assert specs == first.specs()
    async with PluginProcess(host, api, kubelet) as second:
        await second.until(lambda: len(kubelet.registrations) == 2 and len(kubelet.devices) == 6)
        await kubelet.pre_start(f"{A100}-0")

        assert specs == second.specs()


async def test_replicas_of_a_pod_that_ended_before_the_kubelet_restarted_are_anothers(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet's checkpoint names the ended Pod until the next allocation, and then only the new one."""
    api.put("nodes", a_node())
    api.put("pods", a_pod("ended", f"{A100},NVIDIA,700,5:;", "main=1"))
    async with PluginProcess(host, api, kubelet) as plugin:
        await plugin.serving()
        await kubelet.allocate("uid-ended", "ended", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")
        ended = a_pod("ended", f"{A100},NVIDIA,700,5:;", "main=1")
        api.put("pods", ended | {"status": {"phase": "Succeeded"}})
        await kubelet.stop()
        kubelet.forget("uid-ended")
        await kubelet.start()
        await plugin.until(lambda: len(kubelet.registrations) == 2)
        api.put("pods", a_pod("p", f"{T4},NVIDIA,900,5:;", "main=1"))
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        await kubelet.pre_start(f"{A100}-0")

        assert "900m" == plugin.environment(answer)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_allocate_that_fails_changes_nothing(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """Under the lock no Pod waits: the kubelet gets the reason, and the plugin goes on."""
    api.put("nodes", a_node())
    async with PluginProcess(host, api, kubelet, "--allocation=lock") as plugin:
        await plugin.serving()
        with pytest.raises(grpc.aio.AioRpcError, match="no binding pod found on node n1"):
            await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")

        assert ([], {}) == (kubelet.granted, plugin.specs())
        await plugin.readiness(200)
