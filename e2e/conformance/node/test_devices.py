"""
kubelet, devices: plugins, allocation, PodResources and the checkpoint.
"""

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio

from conformance.peers.clusters import Peer
from conformance.peers.objects import Api
from conformance.peers.plugins import SECONDS, Host, host
from hami_device_plugin.adapters.checkpoint import FILE_NAME, Checkpoint
from hamicommon.model import Object
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources_api
from minicluster.kubelet.devices.checkpoint import read_checkpoint as checked_checkpoint
from testbed.waiting import eventually


@pytest_asyncio.fixture(loop_scope="session")
async def node(peer: Peer, api: Api) -> AsyncIterator[Host]:
    """Yield the Node."""
    async with host(peer, api) as found:
        yield found


def refuse(text: str) -> None:
    """Raise an error instead of a plugin's answer."""
    raise ValueError(text)


async def test_what_allocate_answers(node: Host) -> None:
    """A container gets Allocate's environment and mounts, and its own environment wins over the plugin's."""
    (node.peer.shared / "mounted").write_text("from the plugin")
    plugin = await node.plugin()
    mount = api.Mount(container_path="/etc/device", host_path=str(node.peer.shared / "mounted"), read_only=True)
    plugin.respond = lambda ids: api.ContainerAllocateResponse(envs={"A": "plugin", "B": "plugin"}, mounts=[mount])
    env = [{"name": "B", "value": "$(A) and pod"}]
    main = node.container(script='echo "$A, $B, $(cat $0)"', args=["/etc/device"], devices=1, env=env)
    await node.create("p", main, restartPolicy="Never")

    await node.phase("p", "Succeeded")

    assert "plugin, $(A) and pod, from the plugin\n" == await node.log("p")


async def test_order_of_calls(node: Host) -> None:
    """For each container the plugin gets GetPreferredAllocation, Allocate and, at its start, PreStartContainer."""
    plugin = await node.plugin()
    await node.create("p", node.container("a", devices=1), node.container("b", devices=2))
    await node.phase("p", "Running")

    kinds = ["Allocate", "Allocate", "PreStartContainer", "PreStartContainer"]
    assert kinds == [call for call, _ in plugin.calls]
    assert [1, 2, 1, 2] == [len(ids) for _, ids in plugin.calls]
    assert [1, 2] == [size for _, _, size in plugin.preferences]
    assert plugin.calls[:2] == [("Allocate", ids) for ids in plugin.starts]


async def test_owner_inside_the_calls(node: Host) -> None:
    """During PreStartContainer PodResources shows exactly the starting container, and during Allocate none."""
    plugin = await node.plugin()
    await asyncio.gather(*(node.create(name, node.container(devices=2)) for name in ("g0", "g1")))
    await asyncio.gather(*(node.phase(name, "Running") for name in ("g0", "g1")))

    assert [] == plugin.owners["Allocate"]
    assert {"g0", "g1"} == {pod for pod, _, _ in plugin.owners["PreStartContainer"]}
    # The calls of the two containers may overlap, so each is compared with the owner that it recorded.
    assert sorted(plugin.starts) == sorted(ids for _, _, ids in plugin.owners["PreStartContainer"])


async def test_options_count(node: Host) -> None:
    """The plugin's options decide whether PreStartContainer is called, not its registration."""
    plugin = await node.plugin(pre_start=False)
    await node.create("p", node.container(devices=1))
    await node.phase("p", "Running")

    assert ["Allocate"] == [call for call, _ in plugin.calls]


async def test_preferred_ids(node: Host) -> None:
    """The container gets the ids that the plugin prefers."""
    plugin = await node.plugin(4)
    plugin.prefer = lambda available, must, size: ["dev-003", "dev-001"]
    await node.create("p", node.container(devices=2))
    await node.phase("p", "Running")

    assert [(["dev-000", "dev-001", "dev-002", "dev-003"], [], 2)] == plugin.preferences
    assert [("p", "main", ["dev-001", "dev-003"])] == await node.owners()


async def test_init_container_shares_ids(node: Host) -> None:
    """An init container and the main container have the same ids, and PodResources shows main at both starts."""
    plugin = await node.plugin()
    await node.create("p", node.container(devices=2), initContainers=[node.container("init", "true", devices=2)])
    await node.phase("p", "Running")

    ids = plugin.starts[0]
    kinds = ["Allocate", "Allocate", "PreStartContainer", "PreStartContainer"]
    assert [(kind, ids) for kind in kinds] == plugin.calls
    assert [("p", "main", ids)] * 2 == plugin.owners["PreStartContainer"]


async def test_larger_init_container(node: Host) -> None:
    """If an init container requests more than main, only the ids that it shares with main have an owner."""
    plugin = await node.plugin()
    await node.create("p", node.container(devices=1), initContainers=[node.container("init", "true", devices=3)])
    await node.phase("p", "Running")

    init, main = plugin.starts
    assert (3, 1, True) == (len(init), len(main), set(main) < set(init))
    assert [("p", "main", main)] * 2 == plugin.owners["PreStartContainer"]


async def test_larger_main_container(node: Host) -> None:
    """A main container that requests more than its init container gets the init container's ids among others."""
    plugin = await node.plugin(4)
    await node.create("p", node.container(devices=2), initContainers=[node.container("init", "true", devices=1)])
    await node.phase("p", "Running")

    init, main = plugin.starts
    assert (init, 2) == plugin.preferences[1][1:]
    assert set(init) < set(main)
    assert [("p", "main", main)] == await node.owners()


async def test_init_container_alone(node: Host) -> None:
    """Devices of an init container only have no owner in PodResources, and the checkpoint names the container."""
    plugin = await node.plugin()
    pod = await node.create("p", initContainers=[node.container("init", "exec sleep 1000", devices=1)])
    await eventually(lambda: len(plugin.starts) == 1, seconds=SECONDS)

    entries = Checkpoint(node.peer.device_plugins / FILE_NAME).read()

    uid, replicas = pod["metadata"]["uid"], frozenset(plugin.starts[0])
    assert [] == plugin.owners["PreStartContainer"]
    assert [("init", node.resource, replicas)] == [
        (entry.container, entry.resource, entry.replicas) for entry in entries if entry.pod_uid == uid
    ]


async def test_checkpoint(node: Host) -> None:
    """The checkpoint has each container's ids, the plugin's answer and a checksum, and both our readers accept it."""
    plugin = await node.plugin()
    plugin.respond = lambda ids: api.ContainerAllocateResponse(envs={"IDS": ",".join(ids)})
    pod = await node.create("p", node.container(devices=2))
    await node.phase("p", "Running")

    ours = Checkpoint(node.peer.device_plugins / FILE_NAME).read()
    checkpoint = checked_checkpoint(node.peer.device_plugins)

    assert checkpoint is not None
    assert [entry.replicas for entry in ours] == [entry.ids for entry in checkpoint.entries]
    (entry,) = [found for found in checkpoint.entries if found.pod_uid == pod["metadata"]["uid"]]
    (_, ids) = plugin.calls[0]
    assert ("main", node.resource, {-1: ids}) == (
        entry.container,
        entry.resource,
        {numa: sorted(found) for numa, found in entry.ids_by_numa_node.items()},
    )
    answer = api.ContainerAllocateResponse.FromString(entry.response)
    assert {"IDS": ",".join(ids)} == dict(answer.envs)
    assert [f"dev-{index:03}" for index in range(8)] == sorted(checkpoint.registered[node.resource])


async def test_sidecar(node: Host) -> None:
    """A sidecar does not share its ids, and is shown by its name."""
    await node.plugin()
    sidecar = node.container("side", devices=1, restartPolicy="Always")
    await node.create("p", node.container(devices=1), initContainers=[sidecar])
    await node.phase("p", "Running")

    owners = await node.owners()
    assert [("p", "main"), ("p", "side")] == sorted((pod, container) for pod, container, _ in owners)
    assert 2 == len({ids[0] for _, _, ids in owners})


@pytest.mark.other_in("1.33", "PodResources has List; Get is disabled")
async def test_pod_resources(node: Host) -> None:
    """List, Get and GetAllocatableResources have one entry for each id, and Get of an unknown Pod is an error."""
    await node.plugin(3)
    await node.create("p", node.container(devices=2))
    await node.phase("p", "Running")
    namespace = node.api.namespace
    async with node.lister() as stub:
        pod = (
            await stub.Get(resources_api.GetPodResourcesRequest(pod_name="p", pod_namespace=namespace))
        ).pod_resources
        with pytest.raises(grpc.aio.AioRpcError, match=f"pod none in namespace {namespace} not found"):
            await stub.Get(resources_api.GetPodResourcesRequest(pod_name="none", pod_namespace=namespace))

    shown = [(devices.resource_name, len(devices.device_ids)) for devices in pod.containers[0].devices]
    assert [(node.resource, 1)] * 2 == shown
    assert ["dev-000", "dev-001", "dev-002"] == await node.devices()


async def test_completed_pod(node: Host) -> None:
    """A Pod that has ended is no longer listed, and its ids are free although it is not deleted."""
    await node.plugin(1)
    await node.create("done", node.container(script="true", devices=1), restartPolicy="Never")
    await node.phase("done", "Succeeded")

    await node.create("next", node.container(devices=1))

    await node.phase("next", "Running")
    assert [("next", "main", ["dev-000"])] == await node.owners()


async def test_too_few_devices(node: Host) -> None:
    """A Pod that requests more devices than available fails with UnexpectedAdmissionError and both numbers."""
    await node.plugin(1)
    await node.create("p", node.container(devices=2))

    status = (await node.phase("p", "Failed"))["status"]

    error = f"requested number of devices unavailable for {node.resource}. Requested: 2, Available: 1"
    message = f"Pod was rejected: Allocate failed due to {error}, which is unexpected"
    assert ("UnexpectedAdmissionError", message) == (status["reason"], status["message"])


async def test_rejected_pod(node: Host) -> None:
    """A rejected Pod has an Event with the reason, and none of its containers has started."""
    await node.plugin(1)
    await node.create("p", node.container(devices=2))
    pod = await node.phase("p", "Failed")

    async def told() -> list[Object]:
        events, _ = await node.api.list(f"{node.api.place}/events", fieldSelector="involvedObject.name=p")
        return [event for event in events if event["reason"] == "UnexpectedAdmissionError"]

    ((event), *_) = await eventually(told, seconds=SECONDS)
    assert f"Pod was rejected: {event['message']}" == pod["status"]["message"]
    assert "Warning" == event["type"]
    assert not any("running" in status.get("state", {}) for status in pod["status"].get("containerStatuses") or ())


async def test_unknown_resource(node: Host) -> None:
    """A Pod bound to a Node that never offered the resource runs without devices."""
    await node.create("p", node.container(devices=1))

    await node.phase("p", "Running")

    assert [] == await node.owners()


async def test_allocate_error(node: Host) -> None:
    """An error of Allocate fails the Pod with Go's text, and frees the ids."""
    plugin = await node.plugin(1)
    answer, plugin.respond = plugin.respond, lambda ids: refuse("no share for it")  # type: ignore[return-value, assignment]
    await node.create("refused", node.container(devices=1))
    status = (await node.phase("refused", "Failed"))["status"]
    assert "Allocate failed due to rpc error: code = Unknown desc = no share for it, which is" in status["message"]

    plugin.respond = answer
    await node.create("accepted", node.container(devices=1))
    await node.phase("accepted", "Running")


async def test_pre_start_error(node: Host) -> None:
    """An error of PreStartContainer keeps the container waiting, causes an Event, and is retried."""
    plugin = await node.plugin()
    plugin.before_start = lambda ids: refuse("not yet")
    await node.create("p", node.container(devices=1), restartPolicy="Never")
    message = await node.waits("p", "CreateContainerConfigError")
    text = "device plugin PreStartContainer rpc failed with err: rpc error: code = Unknown desc = not yet"
    assert text == message

    async def told() -> bool:
        events, _ = await node.api.list(f"{node.api.place}/events", fieldSelector="involvedObject.name=p")
        return ("Failed", f"Error: {text}") in [(event["reason"], event["message"]) for event in events]

    await eventually(told, seconds=SECONDS)
    plugin.before_start = lambda ids: None

    await node.phase("p", "Running")
    assert len(plugin.starts) >= 2


async def test_every_start(node: Host) -> None:
    """PreStartContainer is called at every start of a container with the same ids, and Allocate once."""
    plugin = await node.plugin()
    await node.create("p", node.container(script="exit 1", devices=1))
    await node.until("p", lambda status: status["containerStatuses"][0]["restartCount"] >= 1)

    assert 1 == [call for call, _ in plugin.calls].count("Allocate")
    assert len(plugin.starts) >= 2
    assert 1 == len({tuple(ids) for _, ids in plugin.calls})


async def test_unhealthy_device(node: Host) -> None:
    """An unhealthy device leaves allocatable and stays in capacity, and returns once it is healthy."""
    plugin = await node.plugin(3)
    await node.amounts_are("3", "3")
    await plugin.set_unhealthy("dev-001")
    await node.amounts_are("3", "2")

    await plugin.set_unhealthy()

    await node.amounts_are("3", "3")


async def test_end_of_a_plugin(node: Host) -> None:
    """When a plugin ends, allocatable is 0, capacity stays for a while, and Pods that request devices fail."""
    plugin = await node.plugin(3)
    await node.amounts_are("3", "3")
    await plugin.stop()
    await node.amounts_are("3", "0")

    await node.create("p", node.container(devices=1))

    status = (await node.phase("p", "Failed"))["status"]
    error = f"no healthy devices present; cannot allocate unhealthy devices {node.resource}"
    assert f"Pod was rejected: Allocate failed due to {error}, which is unexpected" == status["message"]


@pytest.mark.other_in("1.37", "the new instance stays connected")
async def test_overlapping_plugins(node: Host) -> None:
    """The end of an old instance of a plugin disconnects the new one until it registers again."""
    old = await node.plugin(2)
    new = await node.plugin(3, socket=f"{node.api.namespace}-new.sock")
    await old.stop()
    await eventually(lambda: _is_none(node), seconds=SECONDS)
    await node.create("trapped", node.container(devices=1))
    status = (await node.phase("trapped", "Failed"))["status"]
    assert f"cannot allocate unhealthy devices {node.resource}" in status["message"]

    await new.register()

    await eventually(lambda: _is_all(node, 3), seconds=SECONDS)
    await node.create("free", node.container(devices=1))
    await node.phase("free", "Running")


async def _is_none(node: Host) -> bool:
    return [] == await node.devices()


async def _is_all(node: Host, count: int) -> bool:
    return count == len(await node.devices())


@pytest.mark.parametrize(
    ("version", "resource", "problem"),
    [
        ("v1", "", 'requested API version "v1" is not supported by kubelet. Supported version is'),
        ("v1beta1", "gpu", 'the ResourceName "gpu" is invalid'),
    ],
)
async def test_bad_registration(node: Host, version: str, resource: str, problem: str) -> None:
    """A registration of another version, or of a resource without a domain, is rejected with a message."""
    request = api.RegisterRequest(version=version, resource_name=resource or node.resource, endpoint="none.sock")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.register(request)

    assert problem in (caught.value.details() or "")
    assert grpc.StatusCode.UNKNOWN == caught.value.code()


async def test_devices_of_a_deleted_pod(node: Host) -> None:
    """The ids of a deleted Pod are free once it is gone."""
    await node.plugin(1)
    await node.create("first", node.container(devices=1))
    await node.phase("first", "Running")
    await node.api.delete(f"{node.api.pods}/first", grace_seconds=1)
    await node.gone("first")

    await node.create("second", node.container(devices=1))

    await node.phase("second", "Running")
