"""
A cluster with peers of an older wire version, or without CDI, works.
"""

import asyncio

import pytest

from hamicommon.wire import keys
from hamicommon.wire.node_devices import decode_node_devices
from harness.cluster import ClusterOf, Settings
from harness.invariants import check
from harness.manifests import SLEEP, a_pod
from testbed.driver.hardware import FakeNode

NODES = (FakeNode.of("old", "NVIDIA A10", 24576, 2),)
PODS = 6


@pytest.mark.parametrize("version", ["2.4", "2.7", "2.9"])
async def test_older_wire_version_is_written_and_read(cluster_of: ClusterOf, version: str) -> None:
    """With HAMI_WIRE_VERSION every service writes the forms that peers of that version read."""
    async with cluster_of(NODES, Settings(wire_version=version)) as cluster:
        node = await cluster.api.get("/api/v1/nodes/old")
        inventory = node["metadata"]["annotations"]["hami.io/node-nvidia-register"]
        await cluster.create(a_pod("p", gpu=1, gpumem=3000))

        await cluster.pod_in_phase("p", "Running")

        assert ("[" == inventory[0]) == (version == "2.9")
        await check(cluster)


async def test_node_without_cdi_places_every_pod_through_the_node_lock(cluster_of: ClusterOf) -> None:
    """One Pod at a time, as in HAMi. All get their own share, and the lock is free afterwards."""
    async with cluster_of(NODES, Settings(allocation="lock")) as cluster:
        names = [f"p{number}" for number in range(PODS)]
        await asyncio.gather(
            *(
                cluster.create(a_pod(name, command=SLEEP, gpu=1, gpumem=1000 + number))
                for number, name in enumerate(names)
            )
        )

        for name in names:
            await cluster.pod_in_phase(name, "Running", timeout_seconds=60)

        node = await cluster.api.get("/api/v1/nodes/old")
        assert keys.NODE_LOCK not in node["metadata"]["annotations"]
        devices = decode_node_devices(node["metadata"]["annotations"]["hami.io/node-nvidia-register"])
        assert [False] * len(devices) == [device.finds_owners for device in devices]
        await check(cluster)
