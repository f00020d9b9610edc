"""
The descheduler beside shares: its default profile, and a profile that carries out plans of `kubectl hami defragment`.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
import pytest_asyncio

from hamicommon.model import Share
from hamicommon.wire import keys
from harness.client import asked, asked_json, at_shell, until_explained
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from neighbours import descheduler
from neighbours.charts import example
from testbed.waiting import eventually

NEIGHBOUR = descheduler.NEIGHBOUR
pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster with two replicas with shares on one Node, in a namespace of its own, and no descheduler yet."""
    await real_cluster.deploy()
    async with own_namespace(real_cluster):
        flags = (f"--namespace={real_cluster.namespace}", "-f", str(example("descheduler", "replicas.yaml")))
        await asyncio.to_thread(real_cluster.control_plane.kubectl, "apply", *flags)
        nodes = await eventually(lambda: nodes_of(real_cluster), "both replicas run", descheduler.WAIT_SECONDS)
        assert len(set(nodes)) == 1
        yield real_cluster
        await asyncio.to_thread(descheduler.CHART.remove, real_cluster.control_plane)
        await asyncio.to_thread(real_cluster.control_plane.kubectl, "delete", "--wait", *flags)


async def nodes_of(cluster: RealCluster) -> list[str]:
    """Return the Nodes of both replicas, empty while they do not run."""
    pods, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods", labelSelector="app=serve")
    phases = [pod["status"]["phase"] for pod in pods]
    return [pod["spec"]["nodeName"] for pod in pods] if phases == ["Running", "Running"] else []


@pytest.mark.limit
async def test_default_profile_evicts_what_binpack_puts_together(cluster: RealCluster) -> None:
    """`RemoveDuplicates` of the default profile evicts one of two replicas on a Node, and binpack puts it back."""
    before = await descheduler.residents(cluster)
    await asyncio.to_thread(descheduler.CHART.install, cluster.control_plane, None)

    async def is_evicted() -> bool:
        return not (before.items() <= (await descheduler.residents(cluster)).items())

    await eventually(is_evicted, "a replica is evicted", descheduler.WAIT_SECONDS)
    await asyncio.to_thread(descheduler.CHART.remove, cluster.control_plane)
    nodes = await eventually(lambda: nodes_of(cluster), "both replicas run again", descheduler.WAIT_SECONDS)
    assert len(set(nodes)) == 1


async def test_profile_without_duplicates_evicts_nothing(cluster: RealCluster) -> None:
    """The default profile without `RemoveDuplicates` evicts no share and none of our services in five rounds."""
    before = await descheduler.residents(cluster)
    await asyncio.to_thread(descheduler.CHART.install, cluster.control_plane)

    await descheduler.rounds(cluster, 5)

    assert before == await descheduler.residents(cluster)


@pytest_asyncio.fixture(loop_scope="session")
async def fragmented(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """
    The real cluster with a Pod that waits for a whole device, and the descheduler with the values for plans.

    `first` and `second` have a device each, with 17000 and 20000 of its 40960 MiB. A budget keeps `second` there.
    """
    await real_cluster.deploy()
    async with own_namespace(real_cluster):
        run = partial(asyncio.to_thread, real_cluster.control_plane.kubectl)
        flags = (f"--namespace={real_cluster.namespace}", "-f", str(example("descheduler", "fragmented.yaml")))
        await run("apply", *flags)
        await eventually(lambda: are_apart(real_cluster), "each Deployment has a device", descheduler.WAIT_SECONDS)
        await until_explained(real_cluster, "whole")
        await asyncio.to_thread(descheduler.CHART.install, real_cluster.control_plane, "defragment-values.yaml")
        yield real_cluster
        await asyncio.to_thread(descheduler.CHART.remove, real_cluster.control_plane)
        await run("delete", "--wait", *flags)
        for node in real_cluster.nodes:
            await run("annotate", "node", node.name, f"{keys.NODE_CORDON}-")


async def are_apart(cluster: RealCluster) -> bool:
    """Return whether the Pods of both Deployments run on a device each."""
    found = await shares(cluster)
    return {"first", "second"} == found.keys() and found["first"].uuid != found["second"].uuid


async def shares(cluster: RealCluster) -> dict[str, Share]:
    """Return the share of each running Pod that is not ending: by its Deployment, or its own name."""
    pods, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/pods")
    found = {}
    for pod in pods:
        metadata = pod["metadata"]
        if pod["status"]["phase"] == "Running" and "deletionTimestamp" not in metadata:
            [[share]] = await cluster.granted(pod)
            found[metadata.get("labels", {}).get("app", metadata["name"])] = share
    return found


async def test_plan_is_carried_out_by_the_descheduler(fragmented: RealCluster) -> None:
    """A plan's lines let a Pod that waits get a whole device, and the Pod that moves for it gets its exact share."""
    before = await shares(fragmented)
    plan = await asked_json(fragmented, "defragment", "whole", "-n", fragmented.namespace)

    [move] = plan["moves"]
    assert "first" == move["owner"].removeprefix("ReplicaSet/").rpartition("-")[0]
    assert [before["second"].uuid] == [device["id"] for device in move["gets"]["devices"]]
    assert any("allows no disruption now" in fixed["why"] for fixed in plan["fixed"])
    close, mark, reopen = plan["commands"]
    for line in (close, mark):
        assert 0 == (await at_shell(fragmented, line))[0]

    async def is_moved() -> bool:
        now = (await shares(fragmented)).get("first")
        return now is not None and now.uuid == before["second"].uuid

    await eventually(is_moved, "the Pod runs beside the other", descheduler.WAIT_SECONDS)
    assert 0 == (await at_shell(fragmented, reopen))[0]

    async def is_placed() -> bool:
        return "whole" in await shares(fragmented)

    await eventually(is_placed, "the Pod that waited runs", descheduler.WAIT_SECONDS)
    after = await shares(fragmented)
    assert {"first": 17000, "second": 20000, "whole": 40000} == {name: one.memory_mib for name, one in after.items()}
    assert before["first"].uuid == after["whole"].uuid
    assert before["second"] == after["second"]
    assert 0 == (await asked(fragmented, "grants", "-n", fragmented.namespace)).code


@pytest.mark.limit
async def test_evicted_pod_comes_back_where_its_device_is_left_open(fragmented: RealCluster) -> None:
    """If the device is not closed first, the evicted Pod gets it again before the Pod that waits."""
    before = await descheduler.residents(fragmented)
    device = (await shares(fragmented))["first"].uuid
    _, mark, _ = (await asked_json(fragmented, "defragment", "whole", "-n", fragmented.namespace))["commands"]

    assert 0 == (await at_shell(fragmented, mark))[0]

    async def is_back() -> bool:
        is_evicted = not (before.items() <= (await descheduler.residents(fragmented)).items())
        return is_evicted and "first" in await shares(fragmented)

    await eventually(is_back, "the evicted Pod runs again", descheduler.WAIT_SECONDS)
    await descheduler.rounds(fragmented, 2)
    now = await shares(fragmented)
    assert device == now["first"].uuid
    assert "whole" not in now
