"""The kubelet's behaviour after a plugin is gone for longer than tests of the real one can wait."""

from pathlib import Path

from minicluster_tests.kubelet_peers import NODE, RESOURCE, Cluster, a_cluster, processes
from testbed.waiting import eventually


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
