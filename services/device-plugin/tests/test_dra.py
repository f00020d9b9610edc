"""
A Node of kind `dra`: the plugin as a process, between a kubelet that speaks DRA, an API server and a driver.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_dra import DraKubelet, a_claim, a_result, a_user
from device_plugin_kubelet import Kubelet
from device_plugin_process import A100, NODE, T4, PluginProcess, a_dra_node, a_pod, needs_fake_driver

from hamicommon.dra.grants import CLAIMS, RECORDS
from hamicommon.dra.names import DRIVER
from hamicommon.runtime.host.claim_records import read_records
from hamicommon.runtime.host.records import UNPRELOADED, recorded
from hamicommon.wire.limits_file import decode_limits_file
from testbed.driver.hardware import FakeDriver

pytestmark = needs_fake_driver


@pytest.fixture
def plugin(host: Path, api: ApiServer, kubelet: Kubelet, dra: DraKubelet) -> PluginProcess:
    """Return the plugin of a Node of kind `dra`, to be started."""
    api.put("nodes", a_dra_node())
    return PluginProcess(host, api, kubelet, "--node-kind=dra", f"--kubelet-root={dra.root}")


def slices(api: ApiServer) -> list[dict[str, Any]]:
    """Return the ResourceSlices."""
    return [item for key, item in api.objects.items() if key[0] == "resourceslices"]


def requested(api: ApiServer, name: str, *results: dict[str, Any], pod: dict[str, Any] | None = None) -> dict[str, Any]:
    """Put a claim of *results* and its Pod to the API server, and return the claim."""
    api.put("pods", pod or a_user(name))
    return api.put("resourceclaims", a_claim(name, *results))


async def test_devices_are_offered_in_one_slice_that_the_node_owns(
    api: ApiServer, kubelet: Kubelet, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """The slice has HAMi's names and the driver's facts, and the kubelet gets no replicas."""
    async with plugin:
        await dra.registered()
        await plugin.until(lambda: bool(slices(api)))
        await asyncio.sleep(0.5)

    [found] = slices(api)
    assert [{"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid", "controller": True}] == found[
        "metadata"
    ]["ownerReferences"]
    assert (DRIVER, NODE, {"name": NODE, "generation": 1, "resourceSliceCount": 1}) == (
        found["spec"]["driver"],
        found["spec"]["nodeName"],
        found["spec"]["pool"],
    )
    assert ["hami-gpu-0", "hami-gpu-1"] == [device["name"] for device in found["spec"]["devices"]]
    first = found["spec"]["devices"][0]
    assert ({"string": A100}, {"string": "NVIDIA A100-SXM4-40GB"}, {"string": "0000:01:00.0"}) == (
        first["attributes"]["uuid"],
        first["attributes"]["productName"],
        first["attributes"]["resource.kubernetes.io/pciBusID"],
    )
    assert ("40Gi", "100", "3") == tuple(first["capacity"][name]["value"] for name in ("memory", "cores", "replicas"))
    assert not kubelet.registrations
    assert 1 == len(api.slice_writes)


async def test_kind_of_the_node_is_told_and_its_inventory_offers_nothing_to_hamis_scheduler(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """A grant by annotation would have no replica at the kubelet."""
    async with plugin:
        await dra.registered()
        await plugin.readiness(200)
        await plugin.until(lambda: "hami.io/node-kind" in api.annotations("nodes", "", NODE))
        _, text = await plugin.get("/readyz")
        _, metrics = await plugin.get("/metrics")

    annotations = api.annotations("nodes", "", NODE)
    assert "dra" == annotations["hami.io/node-kind"]
    assert [False, False] == [
        device.get("health", False) for device in json.loads(annotations["hami.io/node-nvidia-register"])
    ]
    assert "this is a Node of kind dra" in text
    assert 'hami_device_plugin_node_kind{kind="dra"} 1.0' in metrics


async def test_node_is_not_ready_until_the_kubelet_registers_the_driver(dra: DraKubelet, plugin: PluginProcess) -> None:
    """The kubelet's reason is shown."""
    dra.refusal = "no such API"
    async with plugin:
        await plugin.readiness(503)
        await plugin.until(lambda: "Not registered" in plugin.events())

        assert "no such API" in (await plugin.get("/readyz"))[1]


async def test_slice_that_the_kubelet_wiped_is_back_at_once(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Each kubelet does that when it starts. The new slice has a higher generation."""
    async with plugin:
        await dra.registered()
        await plugin.until(lambda: bool(slices(api)))
        [old] = slices(api)

        await dra.restart()
        api.remove("resourceslices", "", old["metadata"]["name"])
        await plugin.until(lambda: bool(slices(api)))

        assert 2 == slices(api)[0]["spec"]["pool"]["generation"]


async def test_slice_is_as_it_was_after_a_restart_and_is_not_written(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """The order of devices and all contents are stable."""
    async with plugin:
        await dra.registered()
        await plugin.until(lambda: bool(slices(api)))
        await plugin.kill()
    async with plugin:
        await dra.registered(2)
        await asyncio.sleep(1)

    assert 1 == len(api.slice_writes)


async def test_slice_that_somebody_changed_is_corrected_and_a_second_one_is_deleted(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """The pool is this driver's alone."""
    async with plugin:
        await dra.registered()
        await plugin.until(lambda: bool(slices(api)))
        [own] = slices(api)
        spec = own["spec"] | {"devices": [], "pool": own["spec"]["pool"] | {"generation": 7}}
        api.put("resourceslices", {"metadata": {"name": "other"}, "spec": spec})

        await plugin.until(lambda: ["hami-gpu-0", "hami-gpu-1"] == _names(api) and 1 == len(slices(api)))

        assert 8 == slices(api)[0]["spec"]["pool"]["generation"]


def _names(api: ApiServer) -> list[str]:
    return [device["name"] for item in slices(api) for device in item["spec"]["devices"]]


async def test_unhealthy_device_has_a_taint_until_it_is_healthy(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Its key names the fault, and the kubelet's stream of health says the same."""
    async with plugin:
        await dra.registered()
        await plugin.until(lambda: bool(slices(api)))
        stream = dra.health()
        first = await stream.read()
        driver = FakeDriver(host / "hardware")
        driver.lose(T4)
        await plugin.until(lambda: bool(_taints(api)))
        told = await stream.read()
        assert {"hami-gpu-1": ["hami.io/device-lost"]} == _taints(api)
        driver.bring_back(T4)
        await plugin.until(lambda: not _taints(api))

    assert [("hami-gpu-0", 1, ""), ("hami-gpu-1", 1, "")] == _health(first)
    assert [("hami-gpu-0", 1, ""), ("hami-gpu-1", 2, "lost")] == _health(told)


def _taints(api: ApiServer) -> dict[str, list[str]]:
    """Return the keys of the taints of each device that has some, by its name."""
    devices = [device for item in slices(api) for device in item["spec"]["devices"]]
    return {device["name"]: [taint["key"] for taint in device["taints"]] for device in devices if "taints" in device}


def _health(message: Any) -> list[tuple[str, int, str]]:
    return [(found.device.device_name, found.health, found.message) for found in message.devices]


async def test_container_of_a_claim_gets_its_share(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """The answer names a CDI device whose spec has the limits, the library and the region of the claim's request."""
    claim = requested(api, "c", a_result("hami-gpu-1", share="s-9"))
    async with plugin:
        await dra.registered()
        answer = (await dra.prepare(claim))["claim-c"]

    [device] = answer.devices
    assert ("", ["gpu"], NODE, "hami-gpu-1", "s-9") == (
        answer.error,
        list(device.request_names),
        device.pool_name,
        device.device_name,
        device.share_id,
    )
    assert ["hami.io/vgpu=c-claim-c_gpu_s-9"] == list(device.cdi_device_ids)
    env = plugin.env_of(device.cdi_device_ids[0])
    assert ("700m", "5", T4) == (
        env["CUDA_DEVICE_MEMORY_LIMIT_0"],
        env["CUDA_DEVICE_SM_LIMIT"],
        env["NVIDIA_VISIBLE_DEVICES"],
    )
    directory = host / "hook/vgpu/claims/claim-c_gpu"
    assert ["c-claim-c_gpu_s-9.cache", "limits"] == sorted(path.name for path in directory.iterdir())
    limits = decode_limits_file((directory / "limits").read_bytes())
    assert [(T4, 700 << 20, 5)] == [(uuid, one.memory_bytes, one.core_percent) for uuid, one in limits.devices.items()]


async def test_two_shares_of_one_device_in_one_claim_are_two_containers_own(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Results are told apart by request and share, not by device."""
    small, large = (
        a_result(request="small", share="s-1"),
        a_result(request="large", share="s-2", consumed={"memory": "2Gi", "cores": "50"}),
    )
    claim = requested(api, "c", small, large, pod=a_user("c", "a=small", "b=large"))
    async with plugin:
        await dra.registered()
        answer = (await dra.prepare(claim))["claim-c"]

    assert "" == answer.error
    found = {device.request_names[0]: plugin.env_of(device.cdi_device_ids[0]) for device in answer.devices}
    assert {"small": ("700m", "5"), "large": ("2048m", "50")} == {
        request: (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"]) for request, env in found.items()
    }
    regions = {env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] for env in found.values()}
    assert 2 == len(regions)


async def test_request_for_several_devices_gives_its_container_all_of_them(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Whichever of its CDI devices the runtime applies last, the container has every limit, and one region."""
    claim = requested(api, "c", a_result(share="s-1"), a_result("hami-gpu-1", share="s-2"))
    async with plugin:
        await dra.registered()
        answer = (await dra.prepare(claim))["claim-c"]

    first, second = (plugin.env_of(device.cdi_device_ids[0]) for device in answer.devices)
    assert first == second
    assert f"{A100},{T4}" == first["HAMI_DEVICE_UUIDS"]


async def test_chosen_alternative_is_its_requests(api: ApiServer, dra: DraKubelet, plugin: PluginProcess) -> None:
    """Containers name the request, and the result names the alternative too."""
    claim = requested(api, "c", a_result(request="gpu/small"), pod=a_user("c", "main=gpu"))
    async with plugin:
        await dra.registered()
        answer = (await dra.prepare(claim))["claim-c"]

    assert ["gpu"] == list(answer.devices[0].request_names)


async def test_pods_of_one_claim_share_its_region(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """A repeated Prepare changes nothing that containers use."""
    claim = requested(api, "c")
    async with plugin:
        await dra.registered()
        first = (await dra.prepare(claim))["claim-c"]
        region = host / "hook/vgpu/claims/claim-c_gpu/c-claim-c_gpu_s-1.cache"
        region.write_bytes(b"used")
        inode = region.stat().st_ino

        api.put("pods", a_user("other", claim="c"))
        api.put("resourceclaims", a_claim("c", pods=("c", "other")))
        again = (await dra.prepare(claim))["claim-c"]

        assert first == again
        assert (b"used", inode) == (region.read_bytes(), region.stat().st_ino)


async def test_monitor_is_told_what_is_prepared_and_which_request_has_no_library(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """A whole device needs none. Unprepare forgets it."""
    whole = {"memory": "40Gi", "cores": "100"}
    claims = [requested(api, "whole", a_result(consumed=whole)), requested(api, "share", a_result("hami-gpu-1"))]
    folder = host / "hook/vgpu" / CLAIMS
    async with plugin:
        await dra.registered()
        await dra.prepare(*claims)
        told, _ = read_records(folder / RECORDS)
        without = recorded(folder, UNPRELOADED)
        await dra.unprepare(*claims)

    assert {"claim-whole", "claim-share"} == told.keys()
    assert {"claim-whole_gpu"} == without
    assert frozenset() == recorded(folder, UNPRELOADED)


async def test_claim_is_unprepared_although_it_is_gone(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Nothing is left of it, and a repetition is no error. A new process knows it too."""
    claim = requested(api, "c")
    async with plugin:
        await dra.registered()
        await dra.prepare(claim)
        api.remove("resourceclaims", "default", "c")
        await plugin.kill()
    async with plugin:
        await dra.registered(2)
        assert {"claim-c": ""} == await dra.unprepare(claim)
        assert {"claim-c": ""} == await dra.unprepare(claim)

        assert {} == plugin.specs()
        assert [] == list((host / "hook/vgpu/claims").glob("claim-c*"))
        assert [] == list((host / "hook/vgpu/claims/.records").glob("*.json"))


async def test_claim_that_exceeds_a_device_is_refused_until_another_is_gone(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Whatever the API says: the Node knows what it has prepared."""
    most = {"memory": "30Gi", "cores": "10"}
    first = requested(api, "a", a_result(share="s-1", consumed=most))
    second = requested(api, "b", a_result(share="s-2", consumed=most))
    async with plugin:
        await dra.registered()
        assert "" == (await dra.prepare(first))["claim-a"].error
        refused = (await dra.prepare(second))["claim-b"].error
        await plugin.until(lambda: bool(api.events("DeviceAboveCapacity")))
        await dra.unprepare(first)

        assert "" == (await dra.prepare(second))["claim-b"].error
    assert (
        f"ResourceClaim default/b is not prepared: device {A100} has 40960 MiB of memory, the claim has 30720, and "
        "30720 are taken, by ResourceClaim default/a. It was allocated more than there is: delete its Pod, so that it "
        "is allocated again"
    ) == refused


async def test_grants_by_annotation_count_in_the_ledger(api: ApiServer, dra: DraKubelet, plugin: PluginProcess) -> None:
    """Pods that ran before the Node became one of kind `dra` run on."""
    api.put("pods", a_pod("old", f"{A100},NVIDIA,40000,5:;", "main=1") | {"status": {"phase": "Running"}})
    claim = requested(api, "c", a_result(consumed={"memory": "1Gi"}))
    async with plugin:
        await dra.registered()

        assert "and 40000 are taken, by Pods with HAMi's annotation" in (await dra.prepare(claim))["claim-c"].error


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        pytest.param(
            a_claim("c", a_result(adminAccess=True)),
            "ResourceClaim default/c, request gpu: adminAccess is not served",
            id="admin",
        ),
        pytest.param(
            a_claim("c", config=[{"opaque": {"driver": DRIVER, "parameters": {}}}]),
            f"ResourceClaim default/c has parameters for {DRIVER}, which takes none: remove `opaque`",
            id="parameters",
        ),
        pytest.param(
            a_claim("c", a_result(pool="n2")), "pool 'n2' is another Node's; this is Node n1", id="another Node"
        ),
        pytest.param(
            a_claim("c", a_result("hami-gpu-7")),
            "device 'hami-gpu-7' is not one of Node n1: hami-gpu-0, hami-gpu-1",
            id="unknown device",
        ),
        pytest.param(
            a_claim("c") | {"status": {}}, "ResourceClaim default/c is not allocated; kube-scheduler", id="unallocated"
        ),
        pytest.param(
            a_claim("c", a_result(consumed={"memory": "lots"})),
            "consumedCapacity.memory: 'lots' is not a quantity",
            id="malformed",
        ),
        pytest.param(
            a_claim("c", pods=("elsewhere",)),
            "none of the 1 Pods in status.reservedFor is known on Node n1",
            id="no Pod here",
        ),
    ],
)
async def test_claim_that_cannot_be_served_gets_an_error_with_the_reason(
    claim: dict[str, Any], message: str, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """The error is the claim's alone, and nothing is left on the host."""
    api.put("pods", a_user("c"))
    api.put("resourceclaims", claim)
    good = requested(api, "good")
    async with plugin:
        await dra.registered()
        answers = await dra.prepare(claim, good)

        assert message in answers["claim-c"].error
        assert "" == answers["claim-good"].error
        assert ["hami.io/vgpu=c-claim-good_gpu_s-1"] == list(plugin.specs())


async def test_parameters_for_another_driver_are_ignored(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """A claim may have devices of several drivers."""
    api.put("pods", a_user("c"))
    claim = api.put("resourceclaims", a_claim("c", config=[{"opaque": {"driver": "gpu.nvidia.com", "parameters": {}}}]))
    async with plugin:
        await dra.registered()

        assert "" == (await dra.prepare(claim))["claim-c"].error


async def test_claim_that_was_made_anew_under_its_name_is_not_prepared(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """The kubelet means the one that its Pod was given."""
    old = requested(api, "c")
    api.put("resourceclaims", old | {"metadata": old["metadata"] | {"uid": "claim-new"}})
    async with plugin:
        await dra.registered()

        assert "has UID claim-new, and the kubelet prepares the one with UID claim-c" in (
            (await dra.prepare(old))["claim-c"].error
        )


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        pytest.param(
            a_user("c"), "uses several requests: c/small, c/large. Its limits can be those of one", id="whole"
        ),
        pytest.param(
            a_user("c", "main=small", securityContext={"privileged": True}),
            "Pod default/c, container main is privileged: it would see every device of the Node",
            id="privileged",
        ),
    ],
)
async def test_claim_is_not_prepared_for_a_container_that_could_pass_its_limits(
    pod: dict[str, Any], message: str, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """The message says what to change."""
    claim = requested(api, "c", a_result(request="small"), a_result(request="large", share="s-2"), pod=pod)
    async with plugin:
        await dra.registered()

        assert message in (await dra.prepare(claim))["claim-c"].error


async def test_younger_plugin_serves_beside_the_older_one_and_alone_writes_the_slice(
    host: Path, api: ApiServer, kubelet: Kubelet, dra: DraKubelet
) -> None:
    """An update overlaps: each has sockets with its Pod's UID, and the older one removes only its own."""
    api.put("nodes", a_dra_node())
    flags = ("--node-kind=dra", f"--kubelet-root={dra.root}")
    claim = requested(api, "c")
    async with PluginProcess(host, api, kubelet, *flags, POD_UID="uid-1") as older:
        await dra.registered()
        await older.until(lambda: bool(slices(api)))
        async with PluginProcess(host, api, kubelet, *flags, POD_UID="uid-2") as younger:
            await dra.registered(2)
            await younger.readiness(200)
            api.remove("resourceslices", "", slices(api)[0]["metadata"]["name"])
            await younger.until(lambda: bool(slices(api)))
            assert 1 == older.events().count("Wrote the Node's ResourceSlice")
            assert 0 == await older.terminate()

            assert "" == (await dra.prepare(claim))["claim-c"].error
            assert [f"{DRIVER}-uid-2-reg.sock"] == [path.name for path in dra.registry.iterdir()]


async def test_removed_socket_is_served_again(dra: DraKubelet, plugin: PluginProcess) -> None:
    """The kubelet would not know the driver any more."""
    async with plugin:
        await dra.registered()
        (dra.registry / f"{DRIVER}-reg.sock").unlink()

        await dra.registered(2)


async def until_it_waits(plugin: PluginProcess, reason: str) -> None:
    """Wait until *plugin* says that it waits, for *reason*."""
    await plugin.until(lambda: "The Node is not served" in plugin.events())
    assert reason in (await plugin.get("/readyz"))[1]


async def test_plugin_of_the_other_kind_serves_once_the_first_has_ended(
    host: Path, api: ApiServer, kubelet: Kubelet, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """A label that changes starts the new plugin while the old one ends; each device has one bookkeeper at a time."""
    async with PluginProcess(host, api, kubelet) as former:
        await former.serving()
        async with plugin:
            await until_it_waits(plugin, "a plugin of kind plugin still serves this Node")
            assert not dra.drivers
            assert "hami.io/node-kind" not in api.annotations("nodes", "", NODE)
            await former.terminate()

            await dra.registered()
            await plugin.until(lambda: "dra" == api.annotations("nodes", "", NODE).get("hami.io/node-kind"))
            registrations = len(kubelet.registrations)
            async with PluginProcess(host, api, kubelet) as latter:
                await until_it_waits(latter, "a plugin of kind dra still serves this Node")
                assert registrations == len(kubelet.registrations)
                await plugin.kill()
                await latter.until(lambda: len(kubelet.registrations) > registrations)


async def test_node_with_prepared_claims_does_not_become_one_of_replicas(
    host: Path, api: ApiServer, kubelet: Kubelet, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """A plugin of kind `plugin` would promise again what their containers have. The last claim's end lets it serve."""
    claim = requested(api, "c")
    async with plugin:
        await dra.registered()
        assert "" == (await dra.prepare(claim))["claim-c"].error
        await plugin.terminate()
    async with PluginProcess(host, api, kubelet) as replicas:
        await until_it_waits(replicas, "1 ResourceClaims are prepared here")
        assert not kubelet.registrations
        await replicas.until(lambda: bool(api.events("NodeNotServed")))

        for path in (host / "cdi").glob("hami.io-vgpu-claim_*"):
            path.unlink()
        await replicas.serving()
