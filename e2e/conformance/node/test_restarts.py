"""
kubelet, restarts: the state after a kubelet was killed.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from conformance.peers.clusters import NODE, Peer
from conformance.peers.objects import Api
from conformance.peers.plugins import SECONDS, Host, host
from testbed.processes import commands_with
from testbed.waiting import NotInTimeError, eventually


@pytest_asyncio.fixture(loop_scope="session")
async def node(peer: Peer, api: Api) -> AsyncIterator[Host]:
    """Yield the Node."""
    async with host(peer, api) as found:
        yield found


async def restart(node: Host) -> None:
    """Kill the kubelet, start it again, and wait until it answers."""
    node.peer.kill_kubelet()
    node.peer.start_kubelet()
    await answers(node)


async def answers(node: Host) -> None:
    """Wait until the kubelet serves Registration and PodResources."""

    async def does() -> bool:
        await node.owners()
        # A socket of a killed kubelet refuses connections.
        _, writer = await asyncio.open_unix_connection(node.peer.device_plugins / "kubelet.sock")
        writer.close()
        return True

    try:
        await eventually(does, seconds=SECONDS)
    except NotInTimeError as error:
        error.add_note(f"The end of the kubelet's log:\n{node.peer.kubelet_log()}")
        raise


async def test_running_containers(node: Host) -> None:
    """After a restart of the kubelet, containers keep running with the same ids, without restart or plugin call."""
    plugin = await node.plugin()
    sidecar = node.container("side", devices=1, restartPolicy="Always")
    inits = [node.container("init", "true"), sidecar]
    await node.create("p", node.container(devices=2), initContainers=inits)
    before = await node.phase("p", "Running")
    owned = await node.owners()
    node.peer.kill_kubelet()
    await plugin.stop()

    node.peer.start_kubelet()

    await looked_at_its_pods(node)
    successor = await node.plugin()
    assert owned == await node.owners()
    after = (await node.phase("p", "Running"))["status"]
    assert [] == successor.calls
    for field in ("containerID", "restartCount", "state", "ready"):
        kept = [[status[field] for status in found["containerStatuses"]] for found in (before["status"], after)]
        assert kept[0] == kept[1]
    assert before["status"]["startTime"] == after["startTime"]


async def looked_at_its_pods(node: Host) -> None:
    """Wait until the kubelet runs a new Pod, because it decides on older Pods first."""
    await node.create("newer")
    await node.phase("newer", "Running")


async def test_ended_init_container(node: Host) -> None:
    """
    A running Pod whose ended init container had devices fails if its plugin does not register in time.

    Source: https://github.com/kubernetes/kubernetes/issues/124345
    """
    plugin = await node.plugin()
    command = f"sleep 1000.{''.join(filter(str.isdigit, node.api.namespace))}"
    main = node.container(script=f"exec {command}", devices=1)
    await node.create("p", main, initContainers=[node.container("init", "true", devices=1)])
    await node.phase("p", "Running")
    assert commands_with(command)
    node.peer.kill_kubelet()
    await plugin.stop()

    node.peer.start_kubelet()

    status = (await node.phase("p", "Failed"))["status"]
    assert "UnexpectedAdmissionError" == status["reason"]
    assert f"no healthy devices present; cannot allocate unhealthy devices {node.resource}" in status["message"]
    await eventually(lambda: not commands_with(command), "the container ends", SECONDS)
    # The status may lack it for good: the kubelet may know the container only from its runtime by then.
    await node.until("p", lambda now: all("terminated" in each["state"] for each in now.get("containerStatuses", ())))
    await answers(node)


async def test_rejected_pod_that_still_runs(node: Host) -> None:
    """A running Pod that a restarted kubelet rejects keeps its phase, and no other status, until it has ended."""
    plugin = await node.plugin()
    main = node.container(script="trap '' TERM; echo up; while :; do sleep 0.05; done", devices=1)
    inits = [node.container("init", "true", devices=1)]
    await node.create("p", main, initContainers=inits, terminationGracePeriodSeconds=3)
    await node.says("p", "up")
    started_at = (await node.phase("p", "Running"))["status"]["startTime"]
    node.peer.kill_kubelet()
    await plugin.stop()

    async with node.statuses("p") as seen:
        node.peer.start_kubelet()
        ended = (await node.phase("p", "Failed"))["status"]

    ending = next(status for status in seen if "initContainerStatuses" not in status)
    assert ("Running", started_at) == (ending["phase"], ending["startTime"])
    assert not {"reason", "conditions", "containerStatuses", "podIP"} & ending.keys()
    assert "UnexpectedAdmissionError" == ended["reason"]
    assert "terminated" in ended["initContainerStatuses"][0]["state"]
    await answers(node)


async def test_sockets_are_deleted(node: Host) -> None:
    """A starting kubelet deletes the plugins' sockets, and has no devices until a plugin registers again."""
    plugin = await node.plugin()
    await node.amounts_are("8", "8")
    await restart(node)

    assert not (node.peer.device_plugins / plugin.socket).exists()
    await node.amounts_are("0", "0")
    await plugin.stop()

    await node.plugin()
    await node.amounts_are("8", "8")


async def test_ids_are_not_given_away(node: Host) -> None:
    """After a restart, a running Pod keeps its ids."""
    plugin = await node.plugin(2)
    await node.create("old", node.container(devices=1))
    await node.phase("old", "Running")
    (old,) = await node.owners()
    await restart(node)
    await plugin.stop()
    await node.plugin(2)

    await node.create("new", node.container(devices=1))

    await node.phase("new", "Running")
    owners = {pod: ids for pod, _, ids in await node.owners()}
    assert {"old": old[2], "new": sorted({"dev-000", "dev-001"} - set(old[2]))} == owners


async def test_container_that_ended_meanwhile(node: Host) -> None:
    """A container that ended while the kubelet was down is reported with its exit code and restarted."""
    await node.create("p", node.container(script="sleep 1; exit 5"))
    await node.until("p", lambda status: "running" in status["containerStatuses"][0]["state"])
    node.peer.kill_kubelet()
    seen = (await node.api.pod("p"))["status"]["containerStatuses"][0]["restartCount"]

    node.peer.start_kubelet()

    pod = await node.until("p", lambda status: status["containerStatuses"][0]["restartCount"] > seen)
    assert 5 == pod["status"]["containerStatuses"][0]["lastState"]["terminated"]["exitCode"]
    await answers(node)


async def test_pod_deleted_meanwhile(node: Host) -> None:
    """A Pod that was deleted while the kubelet was down is gone after its restart."""
    await node.create("p")
    await node.phase("p", "Running")
    node.peer.kill_kubelet()
    await node.api.delete(f"{node.api.pods}/p", grace_seconds=1)

    node.peer.start_kubelet()

    await node.gone("p")
    await answers(node)


async def test_pod_bound_meanwhile(node: Host) -> None:
    """A Pod bound while the kubelet was down fails if its plugin does not register in time."""
    plugin = await node.plugin()
    await node.amounts_are("8", "8")
    node.peer.kill_kubelet()
    await node.create("p", node.container(devices=1))

    node.peer.start_kubelet()

    status = (await node.phase("p", "Failed"))["status"]
    assert f"no healthy devices present; cannot allocate unhealthy devices {node.resource}" in status["message"]
    await plugin.stop()
    await answers(node)


async def test_damaged_checkpoint(node: Host) -> None:
    """A kubelet starts with a damaged checkpoint."""
    await node.plugin()
    node.peer.kill_kubelet()
    (node.peer.device_plugins / "kubelet_internal_checkpoint").write_text("{}")

    node.peer.start_kubelet()

    await answers(node)
    assert NODE == (await node.api.get(f"/api/v1/nodes/{NODE}"))["metadata"]["name"]
