"""
A changed device config takes effect in every running service, and no container notices.
"""

import re
from pathlib import Path

import pytest

from harness.cluster import Cluster, ClusterOf, Settings
from harness.clusters import embedded
from harness.manifests import SLEEP, a_pod
from testbed import configmaps
from testbed.driver.hardware import TWO_NODES
from testbed.waiting import eventually

DEVICE_CONFIG = embedded.DEVICE_CONFIG.read_text()
SERVICES = ("webhook", "scheduler", "plugin-node-a")


async def hashes(cluster: Cluster) -> set[str]:
    """Return the hashes of the device configs that the services use."""
    texts = [await cluster.metrics(part) for part in SERVICES]
    return {found for text in texts for found in re.findall(r'hami_device_config_info{hash="(\w+)"} 1', text)}


@pytest.mark.embedded_only
async def test_changed_device_config_holds_for_new_pods(cluster_of: ClusterOf, tmp_path: Path) -> None:
    """With four shares a device instead of ten, the kubelet offers four, running Pods continue, new Pods are placed."""
    configmaps.mount(tmp_path, {"device-config.yaml": DEVICE_CONFIG})
    async with cluster_of(TWO_NODES[:1], Settings(device_config=tmp_path / "device-config.yaml")) as cluster:
        await cluster.create(a_pod("before", command=SLEEP, gpu=1, gpumem=3000))
        await cluster.pod_in_phase("before", "Running")
        before = await hashes(cluster)

        configmaps.mount(tmp_path, {"device-config.yaml": DEVICE_CONFIG.replace("SplitCount: 10", "SplitCount: 4")})

        async def is_offered() -> bool:
            node = await cluster.api.get("/api/v1/nodes/node-a")
            offered = node["status"]["allocatable"]["nvidia.com/gpu"]
            return offered == str(4 * len(TWO_NODES[0].gpus)) and before.isdisjoint(await hashes(cluster))

        await eventually(is_offered, "four shares a device are offered")
        await cluster.create(a_pod("after", command=SLEEP, gpu=1, gpumem=3000))
        await cluster.pod_in_phase("after", "Running")
        running = await cluster.pod_in_phase("before", "Running")
        assert 0 == running["status"]["containerStatuses"][0]["restartCount"]
        assert (1, 1) == (len(before), len(await hashes(cluster)))
