"""
What Kubernetes does to Pods of its own accord leaves every share right: eviction, taints, a power cut.
"""

import asyncio
from functools import partial

import pytest

from harness.cluster import Cluster, eventually
from harness.load import kept_running
from harness.manifests import SLEEP, a_pod
from harness.real import RealCluster
from minicluster.client import ApiError, Object

pytestmark = pytest.mark.real_only

ON_A = {"nvidia.com/use-gputype": "A100"}
REBOOT_SECONDS = 90


def a_pod_for_all_of_a(name: str) -> Object:
    """Return a Pod beside which no other of its kind fits."""
    return a_pod(name, annotations=ON_A, command=SLEEP, gpu=2, gpumem=40000, gpucores=60)


async def gone(cluster: Cluster, name: str) -> None:
    """Wait until a Pod is gone, or has failed where it is."""

    async def probe() -> bool:
        try:
            return bool((await cluster.pod(name))["status"]["phase"] == "Failed")
        except ApiError as error:
            return error.status == 404

    await eventually(probe, f"{name} is gone", 60)


async def test_evicted_pod_leaves_its_room_to_the_one_that_waits(cluster: RealCluster) -> None:
    """A drain asks for evictions; what the evicted Pod held is free once it has ended, and not before."""
    await cluster.create(a_pod_for_all_of_a("resident"))
    await cluster.pod_in_phase("resident", "Running")
    await cluster.create(a_pod_for_all_of_a("waits"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "resident"}}

    await cluster.api.create(f"/api/v1/namespaces/{cluster.namespace}/pods/resident/eviction", eviction)

    await gone(cluster, "resident")
    await cluster.pod_in_phase("waits", "Running")


async def test_pod_that_tolerates_no_taint_is_evicted_and_counted_no_longer(cluster: RealCluster) -> None:
    """A Node is tainted NoExecute, as for maintenance: its Pod ends, and its share with it."""
    await cluster.create(a_pod("p", annotations=ON_A, command=SLEEP, gpu=1, gpumem=1000))
    await cluster.pod_in_phase("p", "Running")
    taint = {"key": "test/maintenance", "effect": "NoExecute", "value": "now"}
    await cluster.api.patch("/api/v1/nodes/node-a", {"spec": {"taints": [taint]}})
    try:
        await gone(cluster, "p")
    finally:
        await cluster.api.patch("/api/v1/nodes/node-a", {"spec": {"taints": None}})
    await cluster.heal()
    await cluster.node_ready("node-a", REBOOT_SECONDS)


async def test_node_that_lost_its_power_serves_again_what_was_granted(cluster: RealCluster) -> None:
    """
    Containers, sockets and CDI specs are gone. Each Pod is started again with its grant, or replaced by its controller.

    A kubelet that has just booted refuses Pods as long as no device plugin has registered.
    """
    names = [f"p{number}" for number in range(4)]
    for name in names:
        await kept_running(cluster, name, annotations=ON_A)
    before = {name: container_id(await cluster.pod(name)) for name in names}

    await asyncio.to_thread(cluster.control_plane.node("node-a").restart)

    async def is_anew(name: str) -> bool:
        await kept_running(cluster, name, REBOOT_SECONDS, ON_A)
        return container_id(await cluster.pod(name)) not in {None, before[name]}

    for name in names:
        await eventually(partial(is_anew, name), f"{name} was started anew", REBOOT_SECONDS)


def container_id(pod: Object) -> str | None:
    """Return the ID of a Pod's only container, None before it has one."""
    statuses: list[Object] = pod["status"].get("containerStatuses", [])
    found: str | None = statuses[0].get("containerID") if statuses else None
    return found
