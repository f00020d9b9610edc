"""
Kill any service at any moment: the Pod runs or is retried, and nothing is granted twice.
"""

import asyncio

import pytest

from cluster import Cluster
from invariants import environments_of
from load import kept_running
from manifests import a_pod

SERVICES = (
    *("webhook", "scheduler", "plugin-node-a", "plugin-node-b", "monitor-node-a"),
    *("kubelet-node-a", "kube-scheduler", "apiserver"),
)
PODS = 6
MOMENTS_SECONDS = (0.0, 0.05, 0.2)


@pytest.mark.parametrize("moment_seconds", MOMENTS_SECONDS)
@pytest.mark.parametrize("service", SERVICES)
async def test_killed_service_loses_no_pod_and_grants_nothing_twice(
    cluster: Cluster, service: str, moment_seconds: float
) -> None:
    """Six Pods are being placed when the service dies; it starts again and all six run."""
    names = [f"p{number}" for number in range(PODS)]
    async with asyncio.TaskGroup() as placing:
        for name in names:
            placing.create_task(kept_running(cluster, name))
        await asyncio.sleep(moment_seconds)
        await cluster.kill(service)
        await cluster.restart(service)

    phases = [(await cluster.pod(name))["status"]["phase"] for name in names]
    assert ["Running"] * PODS == phases


@pytest.mark.parametrize("service", ["webhook", "scheduler", "plugin-node-a", "monitor-node-a", "kubelet-node-a"])
async def test_running_container_never_notices_a_restart(cluster: Cluster, service: str) -> None:
    """Environment and process stay as they were, whoever restarts."""
    on_a = {"nvidia.com/use-gputype": "A100"}
    await cluster.create(a_pod("p", annotations=on_a, gpu=1, gpumem=1500))
    before_pod = await cluster.pod_in_phase("p", "Running")
    before = await environments_of(cluster)

    await cluster.kill(service)
    await cluster.restart(service)
    await cluster.node_ready("node-a")

    after_pod = await cluster.pod_in_phase("p", "Running")
    assert before == await environments_of(cluster)
    assert before_pod["status"]["containerStatuses"][0]["state"] == after_pod["status"]["containerStatuses"][0]["state"]
