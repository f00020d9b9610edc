"""
The plugin's process in mode `mig`, on a fake driver whose A100 can be cut and whose T4 cannot.
"""

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_kubelet import Kubelet
from device_plugin_mig_process import a_plugin, a_promised_pod, asked_of_the_driver, promised
from device_plugin_process import A100, NODE, T4, a_node, needs_fake_driver

pytestmark = needs_fake_driver

REGISTER = "hami.io/node-nvidia-register"
PHASE, TO_ALLOCATE = "hami.io/bind-phase", "hami.io/vgpu-devices-to-allocate"


def instances(host: Path) -> list[str]:
    """Return the MIG UUIDs on the Node, as another client of the driver sees them."""
    return asked_of_the_driver(host, "print_instances()")


async def started(kubelet: Kubelet, name: str, replica: str = f"{A100}-0") -> Any:
    """Start a Pod's container, and return the answer to Allocate."""
    answer = await kubelet.allocate(f"uid-{name}", name, "main", replica)
    await kubelet.pre_start(replica)
    return answer


async def test_gpu_is_switched_to_mig_and_registered_with_its_profiles(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """Nothing is scaled. The T4 is left out, and the log says why."""
    api.put("nodes", a_node())
    async with a_plugin(host, api, kubelet) as plugin:
        await plugin.serving()
        await plugin.until(lambda: REGISTER in api.annotations("nodes", "", NODE))
        problems = [line["problem"] for line in plugin.logs if line["event"] == "A GPU is not offered"]
        await plugin.until(lambda: bool(api.events("MIGNotReady")) and bool(api.events("MIGSwitchedOn")))

    [device] = json.loads(api.annotations("nodes", "", NODE)[REGISTER])
    assert (A100, 7, 40960, 100, "mig") == tuple(device[name] for name in ("id", "count", "devmem", "devcore", "mode"))
    assert {
        "name": "2g.10gb",
        "memoryMB": 9984,
        "core": 29,
        "sliceCount": 2,
        "placements": [{"start": start, "size": 2} for start in (0, 2, 4)],
    } == device["migProfiles"][1]
    assert {f"{A100}-{number}" for number in range(7)} == set(kubelet.devices)
    assert [True] == [T4 in problem and "it has no MIG" in problem for problem in problems]
    [event] = api.events("MIGNotReady")
    assert ("Warning", NODE) == (event["type"], event["involvedObject"]["name"])
    assert problems[0] in event["message"]


async def test_container_gets_its_instance_and_nothing_else(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """No limit, no library. The Pod names the instance, and is marked."""
    api.put("nodes", a_node())
    api.put("pods", a_promised_pod("p", "2g.10gb", 4, 2))
    async with a_plugin(host, api, kubelet) as plugin:
        await plugin.serving()
        answer = await started(kubelet, "p")
        env = plugin.environment(answer)
        edits = plugin.specs()[answer.cdi_devices[0].name]

        found = promised(api, "p")
        assert env["NVIDIA_VISIBLE_DEVICES"] == found["migUUID"]
        assert [found["migUUID"]] == instances(host)
        assert (A100, {"start": 4, "size": 2}) == (found["gpuUUID"], found["placement"])
        assert {"gpuInstanceID", "computeInstanceID"} <= found.keys()
        assert ["NVIDIA_VISIBLE_DEVICES"] == sorted(env)
        assert [] == edits.get("mounts", [])
        await plugin.until(lambda: api.annotations("pods", "default", "p")[PHASE] == "success")
        assert not (host / "hook/vgpu/containers").exists()


async def test_instance_goes_when_the_pod_is_gone(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """Within seconds; a neighbour's stays."""
    api.put("nodes", a_node())
    for number, name in enumerate("pq"):
        api.put("pods", a_promised_pod(name, start=number))
    async with a_plugin(host, api, kubelet) as plugin:
        await plugin.serving()
        for number, name in enumerate("pq"):
            await started(kubelet, name, f"{A100}-{number}")
        api.remove("pods", "default", "p")

        await plugin.until(lambda: "Destroyed a MIG instance" in plugin.events())

        assert [promised(api, "q")["migUUID"]] == instances(host)


async def test_next_process_adopts_what_the_killed_one_created(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """With the journal or, as after HAMi's plugin, without it."""
    api.put("nodes", a_node())
    api.put("pods", a_promised_pod("p"))
    async with a_plugin(host, api, kubelet) as first:
        await first.serving()
        await started(kubelet, "p")
        await first.kill()
    before = promised(api, "p")
    for is_kept in (True, False):
        if not is_kept:
            (host / "hook/vgpu/mig-instances.json").unlink()
        async with a_plugin(host, api, kubelet) as second:
            registered = len(kubelet.registrations)
            await second.until(lambda registered=registered: len(kubelet.registrations) > registered)  # type: ignore[misc]
            await kubelet.pre_start(f"{A100}-0")
            assert [before["migUUID"]] == instances(host)
            assert before == promised(api, "p")
            await second.kill()


async def test_pod_is_refused_its_promise_while_another_has_the_place(
    host: Path, api: ApiServer, kubelet: Kubelet
) -> None:
    """The kubelet shows the message, and tries again; the Node has an Event, and the metrics show both."""
    api.put("nodes", a_node())
    api.put("pods", a_promised_pod("p"))
    async with a_plugin(host, api, kubelet) as plugin:
        await plugin.serving()
        await started(kubelet, "p")
        api.put("pods", a_promised_pod("thief"))
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await started(kubelet, "thief", f"{A100}-1")

        assert "Pod default/p) is in that place" in str(raised.value.details())
        await plugin.until(lambda: bool(api.events("MIGInstanceNotCreated")))
        [event] = api.events("MIGInstanceNotCreated")
        assert "Pod default/thief, container main gets no MIG instance: " in event["message"]
        labels = f'{{device_uuid="{A100}",profile="1g.5gb",state="live"}}'
        _, metrics = await plugin.get("/metrics")
        assert f"hami_device_plugin_mig_instances{labels} 1.0" in metrics
        assert 'hami_device_plugin_mig_changes_total{change="create",result="refused"} 1.0' in metrics
        assert [promised(api, "p")["migUUID"]] == instances(host)


async def test_edited_promise_does_not_count(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """A tenant who may edit the Pod gets no larger instance by it."""
    api.put("nodes", a_node())
    api.put("pods", a_promised_pod("p"))
    async with a_plugin(host, api, kubelet) as plugin:
        await plugin.serving()
        await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")
        api.put("pods", a_promised_pod("p", "7g.40gb", 0, 8))
        await plugin.until(lambda: "A Pod's allocation was edited, the first one holds" in plugin.events())
        await kubelet.pre_start(f"{A100}-0")

        [created] = [line["instance"] for line in plugin.logs if line["event"] == "Created a MIG instance"]
    assert "1g.5gb at 0:1" in created


async def test_instance_is_given_under_the_lock_too(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """A runtime without CDI gets it in the answer to Allocate, as from HAMi."""
    api.put("nodes", a_node(**{"hami.io/mutex.lock": "2026-08-21T12:00:00Z,default,p"}))
    api.put("pods", a_promised_pod("p"))
    async with a_plugin(host, api, kubelet, "--allocation=lock") as plugin:
        await plugin.serving()
        answer = await kubelet.allocate("uid-p", "p", "main", f"{A100}-0")

        assert {"NVIDIA_VISIBLE_DEVICES": promised(api, "p")["migUUID"]} == dict(answer.envs)
        assert [] == list(answer.mounts)
        assert ";" == api.annotations("pods", "default", "p")[TO_ALLOCATE].replace(";;", ";")


async def test_node_without_a_gpu_that_can_be_cut_says_so(host: Path, api: ApiServer, kubelet: Kubelet) -> None:
    """It is not registered, and has an Event."""
    api.put("nodes", a_node())
    plugin = a_plugin(host, api, kubelet)
    plugin.hardware = f"uuid,name,memory_mib,numa_node,pci_bus_id\n{T4},Tesla T4,16384,1,00000000:02:00.0\n"
    async with plugin:
        await plugin.until(lambda: "Cannot serve devices" in plugin.events())

        error = next(line["error"] for line in plugin.logs if line["event"] == "Cannot serve devices")
        assert "it has no MIG" in api.events("MIGNotReady")[0]["message"]
    assert "no device to offer in mode mig" in error
    assert "it has no MIG; use operatingmode hami-core" in error
    assert [] == kubelet.registrations
