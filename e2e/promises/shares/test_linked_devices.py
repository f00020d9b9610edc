"""
Devices that the plugin rated as well connected go to one Pod.
"""

import pytest

from hamicommon.wire.pair_scores import decode_pair_scores
from harness.cluster import Cluster, ClusterOf, Settings
from harness.manifests import SLEEP, a_pod
from testbed.driver.hardware import FakeDriver, FakeNode
from testbed.waiting import eventually

NODE = FakeNode.of("linked", "NVIDIA A100-SXM4-40GB", 40960, 4)
UUIDS = [gpu.uuid for gpu in NODE.gpus]
SCORES = "hami.io/node-nvidia-score"


async def scores(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Return the scores in the Node's annotation."""
    node = await cluster.api.get(f"/api/v1/nodes/{NODE.name}")
    return decode_pair_scores(node["metadata"].get("annotations", {}).get(SCORES, "[]"))


@pytest.mark.embedded_only
async def test_pod_gets_the_devices_that_are_linked(cluster_of: ClusterOf) -> None:
    """The second and the fourth device have NVLinks. Without scores the policy takes the first two."""
    async with cluster_of((NODE,), Settings(gpu_scheduler_policy="topology-aware")) as cluster:
        driver = FakeDriver(cluster.folder / NODE.name / "hardware")
        for one, other in ((UUIDS[1], UUIDS[3]), (UUIDS[3], UUIDS[1])):
            driver.connect(one, other, 4)
        await cluster.kill(f"plugin-{NODE.name}")
        await cluster.restart(f"plugin-{NODE.name}")

        async def is_rated() -> bool:
            return (await scores(cluster)).get(UUIDS[1], {}).get(UUIDS[3], 0) >= 400

        await eventually(is_rated)
        await cluster.create(a_pod("pair", command=SLEEP, gpu=2, gpumem=1000))
        pod = await cluster.pod_in_phase("pair", "Running")

        granted = pod["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
        assert [UUIDS[1], UUIDS[3]] == [uuid for uuid in UUIDS if uuid in granted]
