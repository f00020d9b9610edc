"""Device plugins are registered, asked and believed exactly as kubelet 1.34 does it."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2_grpc as api_grpc
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources_api
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2_grpc as resources_grpc
from minicluster.kubelet.checkpoint import read_checkpoint
from minicluster_tests.kubelet_peers import (
    NODE,
    RESOURCE,
    Cluster,
    Object,
    Process,
    a_cluster,
    a_container,
    a_pod,
    eventually,
    owners,
    processes,
)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Process]]:
    """One API server and one kubelet for all tests of this module."""
    root = tmp_path_factory.mktemp("devices")
    with processes(root, "--endpoint-grace-seconds", "0.5") as kubelet:
        yield root, kubelet


@pytest.fixture
async def cluster(running: tuple[Path, Process]) -> AsyncIterator[Cluster]:
    """The module's cluster without any Pod of another test; plugins are the test's own."""
    async with a_cluster(*running) as cluster:
        pods, _ = await cluster.client.list("/api/v1/namespaces/default/pods")
        await asyncio.gather(*(cluster.delete(pod["metadata"]["name"]) for pod in pods))
        await eventually(lambda: not any((cluster.root / "pods").glob("*")))
        yield cluster
    (cluster.root / "cdi" / "test.json").unlink(missing_ok=True)


async def amounts(cluster: Cluster) -> tuple[str, str]:
    """Return capacity and allocatable of the plugin's resource."""
    status = (await cluster.client.get(f"/api/v1/nodes/{NODE}"))["status"]
    return status["capacity"][RESOURCE], status["allocatable"][RESOURCE]


def waiting(pod: Object) -> Object:
    """Return why the main container waits."""
    found: Object = pod["status"]["containerStatuses"][0]["state"].get("waiting", {})
    return found


def waits_for(status: Object, reason: str) -> bool:
    """Return whether the first container waits for *reason*."""
    found: Object = status["containerStatuses"][0]["state"].get("waiting", {})
    return found.get("reason") == reason


def write_cdi(root: Path, value: str, device: str = "dev-000") -> None:
    """Write a spec of one device as a plugin should: a rename within the directory."""
    edits = {"env": [f"VALUE={value}"]}
    devices = [{"name": device, "containerEdits": edits}]
    draft = root / "cdi" / "test.tmp"
    draft.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": "example.test/gpu", "devices": devices}))
    draft.rename(root / "cdi" / "test.json")


def naming_cdi(ids: list[str]) -> api.ContainerAllocateResponse:
    """Answer Allocate with a CDI device named after the first id."""
    return api.ContainerAllocateResponse(cdi_devices=[api.CDIDevice(name=f"{RESOURCE}={ids[0]}")])


async def test_container_gets_what_allocate_answers(cluster: Cluster, tmp_path: Path) -> None:
    """Environment and mounts; the Pod's own environment wins over the plugin's."""
    (tmp_path / "file").write_text("mounted")
    plugin = await cluster.plugin()
    mount = api.Mount(container_path="/etc/minicluster-device", host_path=str(tmp_path / "file"), read_only=True)
    plugin.respond = lambda ids: api.ContainerAllocateResponse(envs={"A": "plugin", "B": "plugin"}, mounts=[mount])
    env = [{"name": "B", "value": "$(A) and pod"}]
    main = a_container(script='echo "$A, $B, $(cat $0)"', args=["/etc/minicluster-device"], devices=1, env=env)
    await cluster.create(a_pod("gets", main, restartPolicy="Never"))

    await cluster.phase("gets", "Succeeded")

    assert "plugin, $(A) and pod, mounted\n" == await cluster.log("gets")


async def test_assignment_shows_inside_pre_start_and_not_inside_allocate(cluster: Cluster) -> None:
    """Two Pods at once: each call to PreStartContainer sees exactly its own container as the owner."""
    plugin = await cluster.plugin()
    await asyncio.gather(*(cluster.create(a_pod(name, a_container(devices=2))) for name in ("g0", "g1")))
    await asyncio.gather(*(cluster.phase(name, "Running") for name in ("g0", "g1")))

    assert [] == plugin.owners["Allocate"]
    assert {"g0", "g1"} == {pod for pod, _, _ in plugin.owners["PreStartContainer"]}
    calls = [ids for call, ids in plugin.calls if call == "PreStartContainer"]
    assert calls == [ids for _, _, ids in plugin.owners["PreStartContainer"]]


async def test_options_answer_counts_not_the_registration(cluster: Cluster) -> None:
    """The plugin claims PreStartContainer in its registration and denies it when asked."""
    plugin = await cluster.plugin(pre_start=False)
    await cluster.create(a_pod("options", a_container(devices=1)))
    await cluster.phase("options", "Running")

    assert ["Allocate"] == [call for call, _ in plugin.calls]


async def test_preferred_ids_are_taken(cluster: Cluster) -> None:
    """Of all available ids the plugin chooses."""
    plugin = await cluster.plugin(4)
    plugin.prefer = lambda available, must, size: ["dev-003", "dev-001"]
    await cluster.create(a_pod("prefers", a_container(devices=2)))
    await cluster.phase("prefers", "Running")

    assert [(["dev-000", "dev-001", "dev-002", "dev-003"], [], 2)] == plugin.preferences
    assert [("prefers", "main", ["dev-001", "dev-003"])] == await owners(cluster.root)


async def test_init_container_and_main_share_ids_and_only_main_is_shown(cluster: Cluster) -> None:
    """Both calls to PreStartContainer have the same ids, and the owner shown is main at both."""
    plugin = await cluster.plugin()
    init = a_container("init", "true", devices=2)
    await cluster.create(a_pod("reuse", a_container(devices=2), initContainers=[init]))
    await cluster.phase("reuse", "Running")

    ids = ["dev-000", "dev-001"]
    kinds = ["Allocate", "Allocate", "PreStartContainer", "PreStartContainer"]
    assert [(kind, ids) for kind in kinds] == plugin.calls
    assert [("reuse", "main", ids)] * 2 == plugin.owners["PreStartContainer"]


async def test_larger_init_container_is_known_by_the_shared_id_only(cluster: Cluster) -> None:
    """Init asks for three, main for one: at init's start only that one id has an owner."""
    plugin = await cluster.plugin()
    init = a_container("init", "true", devices=3)
    await cluster.create(a_pod("larger", a_container(devices=1), initContainers=[init]))
    await cluster.phase("larger", "Running")

    started = [ids for call, ids in plugin.calls if call == "PreStartContainer"]
    assert [["dev-000", "dev-001", "dev-002"], ["dev-000"]] == started
    assert [("larger", "main", ["dev-000"])] * 2 == plugin.owners["PreStartContainer"]


async def test_main_that_asks_for_more_must_include_the_init_containers_ids(cluster: Cluster) -> None:
    """GetPreferredAllocation names them, and they are part of what is allocated."""
    plugin = await cluster.plugin(4)
    init = a_container("init", "true", devices=1)
    await cluster.create(a_pod("includes", a_container(devices=2), initContainers=[init]))
    await cluster.phase("includes", "Running")

    assert (["dev-000"], 2) == plugin.preferences[1][1:]
    assert [("includes", "main", ["dev-000", "dev-001"])] == await owners(cluster.root)


async def test_devices_of_an_init_container_alone_have_no_owner(cluster: Cluster) -> None:
    """PodResources never shows it; the checkpoint does."""
    plugin = await cluster.plugin()
    init = a_container("init", "sleep 1000", devices=1)
    pod = await cluster.create(a_pod("init-only", initContainers=[init]))
    await eventually(lambda: len(plugin.calls) == 2)

    checkpoint = read_checkpoint(cluster.root / "device-plugins")

    assert [] == plugin.owners["PreStartContainer"]
    assert checkpoint is not None
    assert [(pod["metadata"]["uid"], "init")] == [(entry.pod_uid, entry.container) for entry in checkpoint.entries]


async def test_sidecar_keeps_its_ids_and_is_shown(cluster: Cluster) -> None:
    """Its ids are not given to the app container."""
    await cluster.plugin()
    sidecar = a_container("side", devices=1, restartPolicy="Always")
    await cluster.create(a_pod("side", a_container(devices=1), initContainers=[sidecar]))
    await cluster.phase("side", "Running")

    assert [("side", "side", ["dev-000"]), ("side", "main", ["dev-001"])] == await owners(cluster.root)


async def test_pod_resources_has_one_entry_for_each_id(cluster: Cluster) -> None:
    """List, Get and GetAllocatableResources alike."""
    await cluster.plugin(3)
    await cluster.create(a_pod("entries", a_container(devices=2)))
    await cluster.phase("entries", "Running")
    socket = cluster.root / "pod-resources" / "kubelet.sock"
    async with grpc.aio.insecure_channel(f"unix:{socket}") as channel:
        stub: Any = resources_grpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
        wanted = resources_api.GetPodResourcesRequest(pod_name="entries", pod_namespace="default")
        pod = (await stub.Get(wanted)).pod_resources
        allocatable = (await stub.GetAllocatableResources(resources_api.AllocatableResourcesRequest())).devices
        with pytest.raises(grpc.aio.AioRpcError, match="pod none in namespace default not found"):
            await stub.Get(resources_api.GetPodResourcesRequest(pod_name="none", pod_namespace="default"))

    one_each = [(RESOURCE, ["dev-000"]), (RESOURCE, ["dev-001"])]
    shown = [(devices.resource_name, list(devices.device_ids)) for devices in pod.containers[0].devices]
    assert one_each == shown
    assert [*one_each, (RESOURCE, ["dev-002"])] == [(one.resource_name, list(one.device_ids)) for one in allocatable]


async def test_completed_pod_is_gone_and_its_ids_are_free(cluster: Cluster) -> None:
    """Without being deleted: the next Pod gets them."""
    await cluster.plugin(1)
    await cluster.create(a_pod("done", a_container(script="true", devices=1), restartPolicy="Never"))
    await cluster.phase("done", "Succeeded")
    assert [] == await owners(cluster.root)

    await cluster.create(a_pod("next", a_container(devices=1)))

    await cluster.phase("next", "Running")
    assert [("next", "main", ["dev-000"])] == await owners(cluster.root)


async def test_too_few_devices_fail_the_pod(cluster: Cluster) -> None:
    """With the kubelet's reason and words."""
    await cluster.plugin(1)
    await cluster.create(a_pod("greedy", a_container(devices=2)))

    status = (await cluster.phase("greedy", "Failed"))["status"]

    error = f"requested number of devices unavailable for {RESOURCE}. Requested: 2, Available: 1"
    message = f"Pod was rejected: Allocate failed due to {error}, which is unexpected"
    assert ("UnexpectedAdmissionError", message) == (status["reason"], status["message"])


async def test_allocate_error_fails_the_pod_and_frees_the_ids(cluster: Cluster) -> None:
    """The text is that of a gRPC error in Go."""
    plugin = await cluster.plugin(1)

    def refuse(ids: list[str]) -> api.ContainerAllocateResponse:
        raise ValueError("no share for it")

    answer, plugin.respond = plugin.respond, refuse
    await cluster.create(a_pod("refused", a_container(devices=1)))
    status = (await cluster.phase("refused", "Failed"))["status"]
    assert "Allocate failed due to rpc error: code = Unknown desc = no share for it, which is" in status["message"]

    plugin.respond = answer
    await cluster.create(a_pod("accepted", a_container(devices=1)))
    await cluster.phase("accepted", "Running")


async def test_pre_start_error_keeps_the_container_waiting_and_heals(cluster: Cluster) -> None:
    """CreateContainerConfigError with the plugin's text, also for a Pod that never restarts."""
    plugin = await cluster.plugin()

    def refuse(ids: list[str]) -> None:
        raise ValueError("not yet")

    plugin.before_start = refuse
    await cluster.create(a_pod("patient", a_container(devices=1), restartPolicy="Never"))
    pod = await cluster.until("patient", lambda status: waits_for(status, "CreateContainerConfigError"))
    text = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = not yet"
    assert {"reason": "CreateContainerConfigError", "message": text} == waiting(pod)
    events, _ = await cluster.client.list("/api/v1/namespaces/default/events")
    assert ("Failed", f"Error: {text}") in [(event["reason"], event["message"]) for event in events]

    plugin.before_start = lambda ids: None

    await cluster.phase("patient", "Running")
    starts = [ids for call, ids in plugin.calls if call == "PreStartContainer"]
    assert len(starts) >= 2


async def test_every_start_of_a_container_is_announced(cluster: Cluster) -> None:
    """Restarts too, with the same ids."""
    plugin = await cluster.plugin()
    await cluster.create(a_pod("again", a_container(script="exit 1", devices=1)))
    await cluster.until("again", lambda status: status["containerStatuses"][0]["restartCount"] >= 2)

    calls = [call for call, _ in plugin.calls]
    assert (1, True) == (calls.count("Allocate"), calls.count("PreStartContainer") >= 3)
    assert {("dev-000",)} == {tuple(ids) for _, ids in plugin.calls}


async def test_cdi_spec_written_in_pre_start_is_what_the_container_gets(cluster: Cluster) -> None:
    """Although a spec of another Pod lay there under the same name."""
    plugin = await cluster.plugin()
    plugin.respond = naming_cdi
    write_cdi(cluster.root, "stale")
    plugin.before_start = lambda ids: write_cdi(cluster.root, "fresh")
    await cluster.create(a_pod("cdi", a_container(script="echo $VALUE; sleep 1000", devices=1)))

    assert "fresh\n" == await cluster.says("cdi", "\n")


async def test_unresolvable_cdi_device_is_retried_with_a_fresh_pre_start(cluster: Cluster) -> None:
    """CreateContainerError in the runtime's words, until the spec is there."""
    plugin = await cluster.plugin()
    plugin.respond = naming_cdi
    await cluster.create(a_pod("unresolved", a_container(script="echo $VALUE; sleep 1000", devices=1)))
    pod = await cluster.until("unresolved", lambda status: waits_for(status, "CreateContainerError"))
    message = f"CDI device injection failed: unresolvable CDI devices {RESOURCE}=dev-000"
    assert message == waiting(pod)["message"]
    starts = len(plugin.calls)

    write_cdi(cluster.root, "there")

    assert "there\n" == await cluster.says("unresolved", "\n")
    assert len(plugin.calls) > starts


async def test_unhealthy_device_leaves_allocatable_and_comes_back(cluster: Cluster) -> None:
    """Capacity stays."""
    plugin = await cluster.plugin(3)
    await plugin.set_unhealthy("dev-001")
    await cluster.allocatable_is("2")
    assert ("3", "2") == await amounts(cluster)

    await plugin.set_unhealthy()

    await cluster.allocatable_is("3")


async def test_capacity_outlives_the_plugin_for_the_grace_time(cluster: Cluster) -> None:
    """Allocatable is 0 at once; capacity follows when the time is over."""
    plugin = await cluster.plugin(3)
    await plugin.stop()
    await cluster.allocatable_is("0")
    assert ("3", "0") == await amounts(cluster)

    async def is_over() -> bool:
        return ("0", "0") == await amounts(cluster)

    await eventually(is_over)


async def test_end_of_the_old_instance_disconnects_the_new_one(cluster: Cluster) -> None:
    """The overlap trap: Pods fail until the new instance registers again."""
    old = await cluster.plugin(2)
    new = await cluster.plugin(3, socket="new.sock")
    await old.stop()
    await cluster.allocatable_is("0")
    await cluster.create(a_pod("trapped", a_container(devices=1)))
    status = (await cluster.phase("trapped", "Failed"))["status"]
    assert f"cannot allocate unhealthy devices {RESOURCE}" in status["message"]

    await new.register()

    await cluster.allocatable_is("3")
    await cluster.create(a_pod("free", a_container(devices=1)))
    await cluster.phase("free", "Running")


@pytest.mark.parametrize(
    ("request_", "problem"),
    [
        (api.RegisterRequest(version="v1", resource_name=RESOURCE), 'API version "v1" is not supported'),
        (api.RegisterRequest(version="v1beta1", resource_name="gpu"), 'ResourceName "gpu" is invalid'),
    ],
)
async def test_bad_registration_is_refused(cluster: Cluster, request_: api.RegisterRequest, problem: str) -> None:
    """With the kubelet's words."""
    async with grpc.aio.insecure_channel(f"unix:{cluster.root}/device-plugins/kubelet.sock") as channel:
        stub: Any = api_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
        with pytest.raises(grpc.aio.AioRpcError, match=problem):
            await stub.Register(request_, timeout=5)
