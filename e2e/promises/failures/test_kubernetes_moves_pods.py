"""
Shares stay exact when Kubernetes moves Pods: eviction, taints, a power cut.
"""

import asyncio
from functools import partial

import pytest

from hamicommon.model import Object
from harness.cluster import Cluster
from harness.clusters.real import RealCluster
from harness.load import kept_running, running
from harness.manifests import SLEEP, a_pod
from minicluster.client import ApiError
from testbed.waiting import eventually

pytestmark = pytest.mark.real_only

ON_A = {"nvidia.com/use-gputype": "A100"}
REBOOT_SECONDS = 90


def a_pod_for_all_of_a(name: str) -> Object:
    """Return a Pod that fills node-a, so that no other of its kind fits."""
    return a_pod(name, annotations=ON_A, command=SLEEP, gpu=2, gpumem=40000, gpucores=60)


async def gone(cluster: Cluster, name: str) -> None:
    """Wait until a Pod is gone or has failed."""

    async def probe() -> bool:
        try:
            return bool((await cluster.pod(name))["status"]["phase"] == "Failed")
        except ApiError as error:
            return error.status == 404

    await eventually(probe, f"{name} is gone", 60)


async def test_share_of_an_evicted_pod_goes_to_the_pending_one(cluster: RealCluster) -> None:
    """A drain evicts Pods. The share is free once the evicted Pod has ended, and not before."""
    await cluster.create(a_pod_for_all_of_a("resident"))
    await cluster.pod_in_phase("resident", "Running")
    await cluster.create(a_pod_for_all_of_a("waits"))
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "resident"}}

    await cluster.api.create(f"/api/v1/namespaces/{cluster.namespace}/pods/resident/eviction", eviction)

    await gone(cluster, "resident")
    await cluster.pod_in_phase("waits", "Running")


async def test_pod_evicted_by_a_taint_is_no_longer_counted(cluster: RealCluster) -> None:
    """A Node gets a taint NoExecute, as for maintenance. Its Pod ends, and the share is free."""
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


async def test_node_serves_its_grants_again_after_a_power_cut(cluster: RealCluster) -> None:
    """
    Containers, sockets and CDI specs are gone. Each Pod starts again with its grant, or its controller replaces it.

    A kubelet that has just booted rejects Pods until a device plugin has registered.
    """
    names = [f"p{number}" for number in range(4)]
    for name in names:
        await kept_running(cluster, name, annotations=ON_A)
    before = {name: container_id(await cluster.pod(name)) for name in names}

    await asyncio.to_thread(cluster.control_plane.node(cluster.nodes[0].name).restart)

    async def is_restarted(name: str) -> bool:
        pod = await running(cluster, name, ON_A)
        return pod is not None and container_id(pod) not in {None, before[name]}

    for name in names:
        await eventually(partial(is_restarted, name), f"{name} is started again", REBOOT_SECONDS)


def container_id(pod: Object) -> str | None:
    """Return the ID of the Pod's only container, or None before it has one."""
    statuses: list[Object] = pod["status"].get("containerStatuses", [])
    found: str | None = statuses[0].get("containerID") if statuses else None
    return found
