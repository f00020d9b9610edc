"""
Any service may be killed at any moment: each Pod runs or is retried, and nothing is granted twice.
"""

import asyncio

import pytest

from harness.cluster import Cluster
from harness.invariants import environments_of
from harness.load import kept_running
from harness.manifests import a_pod

SERVICES = (
    *("webhook", "scheduler", "plugin-node-a", "plugin-node-b", "monitor-node-a"),
    *("kubelet-node-a", "kube-scheduler", "apiserver"),
)
PODS = 3
MOMENTS_SECONDS = (0.0, 0.05, 0.2)
PLACED_SECONDS = 90.0
"""A kubelet that could not start a container retries after 10 s, and may be killed three times meanwhile."""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("service", SERVICES)
async def test_killed_service_loses_no_pod_and_grants_nothing_twice(cluster: Cluster, service: str) -> None:
    """The service is killed at three moments, each after three more Pods were created. All Pods run in the end."""
    names = [f"p{number}" for number in range(PODS * len(MOMENTS_SECONDS))]
    async with asyncio.TaskGroup() as placing:
        for batch, moment_seconds in enumerate(MOMENTS_SECONDS):
            for name in names[batch * PODS : (batch + 1) * PODS]:
                placing.create_task(kept_running(cluster, name, PLACED_SECONDS))
            await asyncio.sleep(moment_seconds)
            await cluster.kill(service)
            await cluster.restart(service)

    phases = [(await cluster.pod(name))["status"]["phase"] for name in names]
    assert ["Running"] * len(names) == phases


@pytest.mark.parametrize("service", ["webhook", "scheduler", "plugin-node-a", "monitor-node-a", "kubelet-node-a"])
async def test_running_container_never_notices_a_restart(cluster: Cluster, service: str) -> None:
    """Its environment and its process stay the same, whichever service restarts."""
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
