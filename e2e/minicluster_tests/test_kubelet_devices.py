"""The kubelet's behaviour after a plugin is gone for longer than tests of the real one can wait."""

import asyncio
from pathlib import Path

from minicluster_tests.kubelet_peers import NODE, RESOURCE, Cluster, a_cluster, a_container, a_pod, processes
from testbed.waiting import eventually

GRACE_SECONDS = 20
"""Of a container that ends no sooner. A busy machine takes some of it until the next Pod is there."""


async def amounts(cluster: Cluster) -> tuple[str, str]:
    """Return capacity and allocatable of the plugin's resource."""
    status = (await cluster.client.get(f"/api/v1/nodes/{NODE}"))["status"]
    return status["capacity"][RESOURCE], status["allocatable"][RESOURCE]


async def test_capacity_outlives_the_plugin_for_the_grace_time(tmp_path: Path) -> None:
    """Allocatable is 0 at once, and capacity after the grace time."""
    with processes(tmp_path, "--endpoint-grace-seconds", "0.5") as kubelet:
        async with a_cluster(tmp_path, kubelet) as cluster:
            plugin = await cluster.plugin(3)
            await plugin.stop()
            await cluster.allocatable_is("0")
            assert ("3", "0") == await amounts(cluster)

            async def is_over() -> bool:
                return ("0", "0") == await amounts(cluster)

            await eventually(is_over)


async def test_pod_deleted_by_force_keeps_its_devices_until_it_has_ended(tmp_path: Path) -> None:
    """Its object is gone at once; its containers have their grace period."""
    with processes(tmp_path) as kubelet:
        async with a_cluster(tmp_path, kubelet) as cluster:
            await cluster.plugin(1)
            stubborn = a_container(script="trap '' TERM; echo deaf; while true; do sleep 0.1; done", devices=1)
            await cluster.create(a_pod("first", stubborn, terminationGracePeriodSeconds=GRACE_SECONDS))
            await cluster.says("first", "deaf")
            await cluster.delete("first", grace_seconds=0)

            await cluster.create(a_pod("early", a_container(devices=1)))
            early = await cluster.phase("early", "Failed")
            assert "UnexpectedAdmissionError" == early["status"]["reason"]
            assert "Requested: 1, Available: 0" in early["status"]["message"]
            await asyncio.sleep(GRACE_SECONDS + 1)
            await cluster.create(a_pod("late", a_container(devices=1)))
            await cluster.phase("late", "Running")


async def test_pod_that_asks_for_what_the_kubelet_does_not_know_runs_without_it(tmp_path: Path) -> None:
    """A resource that is not in the Node's status is not counted. Once it is there with 0, it is."""
    with processes(tmp_path, "--endpoint-grace-seconds", "0.5") as kubelet:
        async with a_cluster(tmp_path, kubelet) as cluster:
            await cluster.create(a_pod("unknown", a_container(devices=1)))
            await cluster.phase("unknown", "Running")

            plugin = await cluster.plugin(3)
            await plugin.stop()
            await cluster.allocatable_is("0")
            await asyncio.sleep(1)
            await cluster.create(a_pod("forgotten", a_container(devices=1)))
            forgotten = await cluster.phase("forgotten", "Failed")
            assert f"OutOf{RESOURCE}" == forgotten["status"]["reason"]


async def test_status_of_the_node_lags_behind(tmp_path: Path) -> None:
    """A plugin that has ended is still offered, and a Pod that comes meanwhile fails."""
    with processes(tmp_path, "--status-seconds", "5") as kubelet:
        async with a_cluster(tmp_path, kubelet) as cluster:
            plugin = await cluster.plugin(3)
            await plugin.stop()
            assert ("3", "3") == await amounts(cluster)

            await cluster.create(a_pod("p", a_container(devices=1)))
            await cluster.phase("p", "Failed", 3.0)
            await cluster.allocatable_is("0")


async def test_status_that_another_wrote_is_put_right(tmp_path: Path) -> None:
    """A write of an earlier kubelet may arrive after the first of the next one."""
    with processes(tmp_path) as kubelet:
        async with a_cluster(tmp_path, kubelet) as cluster:
            await cluster.plugin(3)
            late = {"status": {"allocatable": {RESOURCE: "0"}}}

            await cluster.client.patch(f"/api/v1/nodes/{NODE}/status", late)

            await cluster.allocatable_is("3")
