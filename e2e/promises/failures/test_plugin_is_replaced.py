"""
A device plugin that needs the node lock replaces ours.
"""

import asyncio

import pytest

from hamicommon.wire.node_devices import decode_node_devices
from harness.cluster import Cluster, Settings
from harness.clusters import embedded
from harness.invariants import check
from harness.manifests import SLEEP, a_pod
from testbed.driver.hardware import FakeNode
from testbed.folders import short_folder

pytestmark = pytest.mark.embedded_only

NODE = FakeNode.of("node-a", "NVIDIA A10", 24576, 2)
PODS = 6


async def finds_owners(cluster: Cluster) -> set[bool]:
    """Return, for all devices of the inventory, whether they have the mark of identity."""
    node = await cluster.api.get(f"/api/v1/nodes/{NODE.name}")
    devices = decode_node_devices(node["metadata"]["annotations"]["hami.io/node-nvidia-register"])
    return {device.finds_owners for device in devices}


@pytest.mark.timeout(180)
async def test_pods_get_their_own_shares_from_the_plugin_after_a_killed_one() -> None:
    """
    Ours is killed, so it cannot remove its mark. The next plugin overwrites the inventory, and uses HAMi's lock.

    Our plugin stands for HAMi's. With the node lock it writes and reads the same.
    """
    async with embedded.running(short_folder(), (NODE,), Settings(allocation="identity")) as cluster:
        await cluster.create(a_pod("before", command=SLEEP, gpu=1, gpumem=500))
        await cluster.pod_in_phase("before", "Running")
        await cluster.kill(f"plugin-{NODE.name}")
        assert {True} == await finds_owners(cluster)

        await cluster.replace_plugin(NODE, "lock")
        assert {False} == await finds_owners(cluster)
        names = [f"p{number}" for number in range(PODS)]
        await asyncio.gather(
            *(
                cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=1000 + number))
                for number, name in enumerate(names)
            )
        )

        for number, name in enumerate(names):
            pod = await cluster.pod_in_phase(name, "Running", timeout_seconds=60)
            assert f"{1000 + number}m" == cluster.environment(pod)["CUDA_DEVICE_MEMORY_LIMIT_0"]
        await check(cluster)
