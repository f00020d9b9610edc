"""
Pods that ask for devices by resources, on a Node of kind `dra`: it offers tokens, and a claim of them gives the grant.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from device_plugin_apiserver import ApiServer
from device_plugin_dra import DraKubelet, a_claim, a_result
from device_plugin_kubelet import RESOURCE, Kubelet
from device_plugin_process import A100, NODE, T4, PluginProcess, a_dra_node, a_pod, needs_fake_driver

from hami_device_plugin.adapters.claim_records import ClaimRecords
from hamicommon.dra.grants import ClaimGrant, GrantedResult
from hamicommon.model import Share
from testbed.driver.hardware import FakeDriver

pytestmark = needs_fake_driver

GRANT = f"{A100},NVIDIA,3000,25:;"
ALLOCATED = "hami.io/vgpu-devices-allocated"


@pytest.fixture
def plugin(host: Path, api: ApiServer, kubelet: Kubelet, dra: DraKubelet) -> PluginProcess:
    """Return the plugin of a Node of kind `dra` that serves Pods by resources, to be started."""
    api.put("nodes", a_dra_node())
    return PluginProcess(host, api, kubelet, "--node-kind=dra", f"--kubelet-root={dra.root}", "--dra-extended-resource")


def tokens(count: int, request: str = "container-0-request-0", first: int = 0) -> list[dict[str, Any]]:
    """Return the results of a claim of *count* tokens."""
    made = [a_result(f"hami-token-{first + n}", request=request, share="") for n in range(count)]
    return [{key: value for key, value in one.items() if key != "consumedCapacity"} for one in made]


def asking(
    api: ApiServer, name: str, grant: str, *containers: str, results: list[dict[str, Any]], **mapped: str
) -> dict[str, Any]:
    """Put a Pod with *grant*, and the claim of *results* that kube-scheduler made for it, and return the claim."""
    pod = a_pod(name, grant, *containers)
    mapping = [{"containerName": container, "requestName": request} for container, request in mapped.items()]
    pod["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": name, "requestMappings": mapping}
    api.put("pods", pod)
    return api.put("resourceclaims", a_claim(name, *results))


def entries(api: ApiServer) -> list[dict[str, Any]]:
    """Return the devices of all slices."""
    found = [item for key, item in api.objects.items() if key[0] == "resourceslices"]
    return [device for item in found for device in item["spec"]["devices"]]


async def ready(plugin: PluginProcess, api: ApiServer, dra: DraKubelet) -> None:
    """Wait until the plugin serves, and what it offers is written."""
    await dra.registered()
    await plugin.until(lambda: bool(entries(api)))
    await plugin.until(lambda: "hami.io/node-kind" in api.annotations("nodes", "", NODE))


async def test_node_offers_a_token_for_each_replica_and_its_devices_to_our_scheduler(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Tokens have no amounts. The devices are in the Node's inventory, healthy, and in no slice."""
    async with plugin:
        await ready(plugin, api, dra)

    registered = json.loads(api.annotations("nodes", "", NODE)["hami.io/node-nvidia-register"])
    assert [True, True] == [device["health"] for device in registered]
    assert [f"hami-token-{n}" for n in range(6)] == [device["name"] for device in entries(api)]
    assert all(
        {"type": {"string": "hami-token"}} == device["attributes"] and "capacity" not in device
        for device in entries(api)
    )


async def test_tokens_wait_until_the_kubelet_has_forgotten_a_device_plugin(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """It starts no container before. It remembers a device plugin by its capacity, for five minutes."""
    node = a_dra_node()
    api.put("nodes", node | {"status": {"capacity": {RESOURCE: "6"}, "allocatable": {RESOURCE: "0"}}})
    async with plugin:
        await dra.registered()
        await plugin.until(lambda: "hami.io/node-kind" in api.annotations("nodes", "", NODE))
        assert [] == entries(api)

        now = api.objects["nodes", "", NODE]
        api.put("nodes", now | {"status": {"capacity": {RESOURCE: "0"}, "allocatable": {RESOURCE: "0"}}})
        await plugin.until(lambda: 6 == len(entries(api)))


async def test_device_kept_for_claims_is_in_the_slice_and_closed_to_grants(
    host: Path, api: ApiServer, dra: DraKubelet, kubelet: Kubelet
) -> None:
    """So each device has one bookkeeper."""
    api.put("nodes", a_dra_node())
    settings = host / "node.json"
    settings.write_text(json.dumps({"nodeconfig": [{"name": NODE, "claimdevices": {"uuid": [T4]}}]}))
    flags = ("--node-kind=dra", f"--kubelet-root={dra.root}", "--dra-extended-resource")
    plugin = PluginProcess(host, api, kubelet, *flags, f"--node-config-file={settings}")
    async with plugin:
        await ready(plugin, api, dra)

    registered = json.loads(api.annotations("nodes", "", NODE)["hami.io/node-nvidia-register"])
    assert {A100: True, T4: False} == {device["id"]: device.get("health", False) for device in registered}
    assert ["hami-gpu-1", "hami-token-0", "hami-token-1", "hami-token-2"] == sorted(
        device["name"] for device in entries(api)
    )


async def test_container_gets_what_its_pod_was_granted(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Not what the token's number seems to say. The Pod is marked as allocated."""
    async with plugin:
        await ready(plugin, api, dra)
        claim = asking(api, "p", GRANT, "main=1", results=tokens(1, first=4), main="container-0-request-0")
        answer = (await dra.prepare(claim))["claim-p"]
        assert "" == answer.error
        [device] = answer.devices
        env = plugin.env_of(*device.cdi_device_ids)
        await plugin.until(lambda: "success" == api.annotations("pods", "default", "p")["hami.io/bind-phase"])

    assert (["container-0-request-0"], NODE, "hami-token-4") == (
        list(device.request_names),
        device.pool_name,
        device.device_name,
    )
    assert (A100, "3000m", "25") == (
        env["NVIDIA_VISIBLE_DEVICES"],
        env["CUDA_DEVICE_MEMORY_LIMIT_0"],
        env["CUDA_DEVICE_SM_LIMIT"],
    )


async def test_containers_of_a_pod_get_their_own_shares_and_each_token_all_of_its_containers(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """A container with two devices has two tokens, whose CDI devices are alike."""
    grant = f"{A100},NVIDIA,1000,10:{T4},NVIDIA,2000,10:;{A100},NVIDIA,500,5:;"
    results = [*tokens(2, "container-0-request-0"), *tokens(1, "container-1-request-0", first=2)]
    async with plugin:
        await ready(plugin, api, dra)
        claim = asking(
            api, "p", grant, "a=2", "b=1", results=results, a="container-0-request-0", b="container-1-request-0"
        )
        devices = (await dra.prepare(claim))["claim-p"].devices
        found = {one.device_name: plugin.env_of(one.cdi_device_ids[0]) for one in devices}

    limits = {
        name: [env.get("CUDA_DEVICE_MEMORY_LIMIT_0"), env.get("CUDA_DEVICE_MEMORY_LIMIT_1")]
        for name, env in found.items()
    }
    assert {
        "hami-token-0": ["1000m", "2000m"],
        "hami-token-1": ["1000m", "2000m"],
        "hami-token-2": ["500m", None],
    } == limits


async def test_repeated_prepare_keeps_the_region_and_unprepare_leaves_no_spec(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """A kubelet that restarts prepares again while the container runs. A claim may be gone when it ends."""
    async with plugin:
        await ready(plugin, api, dra)
        claim = asking(api, "p", GRANT, "main=1", results=tokens(1), main="container-0-request-0")
        await dra.prepare(claim)
        [region] = host.rglob("uid-p_main/*.cache")
        region.write_bytes(b"in use")
        await dra.restart()
        await dra.registered()

        assert "" == (await dra.prepare(claim))["claim-p"].error
        assert b"in use" == region.read_bytes()
        api.remove("resourceclaims", "default", "p")
        assert {"claim-p": ""} == await dra.unprepare(claim)
        assert {} == plugin.specs()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no grant": ({"grant": ""}, "its container was granted 0 devices"),
    "more tokens than shares": ({"results": tokens(2)}, "has 2 tokens, and its container was granted 1 devices"),
    "no such device": ({"grant": "GPU-x,NVIDIA,3000,25:;"}, "granted device GPU-x is not one of Node"),
    "more than there is": ({"grant": f"{A100},NVIDIA,99999,25:;"}, "has 40960 MiB"),
    "claim named by hand": ({"containers": ("main",)}, "names the claim itself"),
    "devices beside tokens": ({"results": [*tokens(1), a_result()]}, "has devices and tokens"),
    "a token of another Node": (
        {"results": [tokens(1)[0] | {"pool": "other"}]},
        "pool 'other' is another Node's",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_claim_that_its_pod_was_not_granted_is_refused_with_the_reason(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess, case: str
) -> None:
    """Its Pod's Event shows it, and nothing is written."""
    changes, reason = REFUSED[case]
    asked = {"grant": GRANT, "containers": ("main=1",), "results": tokens(1)} | changes
    async with plugin:
        await ready(plugin, api, dra)
        claim = asking(
            api, "p", asked["grant"], *asked["containers"], results=asked["results"], main="container-0-request-0"
        )

        assert reason in (await dra.prepare(claim))["claim-p"].error
        assert {} == plugin.specs()


async def test_device_that_prepared_claims_still_hold_is_refused(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """Such as claims from before the device was opened to Pods that ask by resources."""
    result = GrantedResult("gpu", NODE, "hami-gpu-0", "s", Share(A100, "NVIDIA", 40000, 0), 1)
    async with plugin:
        await ready(plugin, api, dra)
        records = ClaimRecords.of_node(host / "hook/vgpu")
        with records.held():
            records.write(ClaimGrant("default", "before", "uid-b", (result,)))
        claim = asking(api, "p", GRANT, "main=1", results=tokens(1), main="container-0-request-0")
        answer = (await dra.prepare(claim))["claim-p"]

    assert "of which 40000 are taken" in answer.error
    assert "ResourceClaim default/before" in answer.error


async def test_two_containers_with_one_request_are_refused(
    api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """They would get the same share; the scheduler sends no such Pod here."""
    async with plugin:
        await ready(plugin, api, dra)
        grant, request = f"{GRANT}{A100},NVIDIA,500,5:;", "container-0-request-0"
        claim = asking(api, "p", grant, "a=1", "b=1", results=tokens(1), a=request, b=request)

        assert "has one request for the containers a and b" in (await dra.prepare(claim))["claim-p"].error


async def test_tokens_of_a_lost_device_stay_and_the_device_is_unhealthy_in_the_inventory(
    host: Path, api: ApiServer, dra: DraKubelet, plugin: PluginProcess
) -> None:
    """The scheduler grants it to nobody. Fewer tokens would keep Pods from the Node's other devices."""

    def health() -> dict[str, bool]:
        register = json.loads(api.annotations("nodes", "", NODE)["hami.io/node-nvidia-register"])
        return {device["id"]: device.get("health", False) for device in register}

    async with plugin:
        await ready(plugin, api, dra)
        FakeDriver(host / "hardware").lose(T4)
        await plugin.until(lambda: {A100: True, T4: False} == health())

        assert 6 == len(entries(api))
