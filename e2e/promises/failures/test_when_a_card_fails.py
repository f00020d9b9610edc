"""
A card that is lost takes no Pods until it is back, and a driver upgrade needs no hand.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from controlplane import nvidia
from controlplane.cluster import DRIVER
from harness.cluster import Cluster, ClusterOf, Settings
from harness.clusters.real import RealCluster
from harness.manifests import SLEEP, a_pod
from testbed.driver.hardware import FakeDriver, FakeNode
from testbed.waiting import eventually

pytestmark = pytest.mark.timeout(400)

NODE = replace(FakeNode.of("eight", "NVIDIA A100-SXM4-40GB", 40960, 8), kind=nvidia.OPERATOR.name)
ITS = Settings(driver_root=nvidia.DRIVER_ROOT)
UUIDS = [gpu.uuid for gpu in NODE.gpus]
LOST = UUIDS[3]
ON_LOST = {"nvidia.com/use-gpuuuid": LOST}
NEXT = "580.95.05"
"""The version of the driver after an upgrade."""
LIST = ("sh", "-c", "cd /usr/lib/*-linux-gnu && echo libraries: libcuda.so.*.* && exec sleep infinity")
LABEL = "nvidia.com/gpu.deploy.device-plugin"


def driver_of(cluster: Cluster) -> FakeDriver:
    """Return the driver of the Node."""
    return FakeDriver(cluster.driver_folder(NODE.name))


async def eventually_offered(cluster: Cluster, part: float, whole: int) -> None:
    """Wait until the Node offers this *part* of the shares of all devices, *whole*."""

    async def is_so() -> bool:
        return await cluster.offered(NODE.name) == whole * part

    await eventually(is_so, f"{part} of {whole} shares are offered", seconds=60)


async def test_one_lost_card_leaves_seven(cluster_of: ClusterOf) -> None:
    """Its Pod runs on, a Pod that wants it waits and says why, all others start, and it takes Pods when it is back."""
    async with cluster_of((NODE,), ITS) as cluster:
        driver = driver_of(cluster)
        whole = await cluster.offered(NODE.name)
        await cluster.create(a_pod("before", annotations=ON_LOST, command=SLEEP, gpu=1, gpumem=1000))
        await cluster.pod_in_phase("before", "Running")
        driver.lose(LOST)
        await eventually_offered(cluster, 7 / 8, whole)

        await cluster.create(a_pod("waits", annotations=ON_LOST, command=SLEEP, gpu=1, gpumem=1000))
        await cluster.create(a_pod("others", command=SLEEP, gpu=7, gpumem=1000))
        others = await cluster.pod_in_phase("others", "Running")
        [shares] = await cluster.granted(others)
        assert LOST not in {share.uuid for share in shares}
        assert "Pending" == (await cluster.pod("waits"))["status"]["phase"]
        assert "Running" == (await cluster.pod("before"))["status"]["phase"]

        driver.bring_back(LOST)
        await eventually_offered(cluster, 1, whole)
        await cluster.pod_in_phase("waits", "Running", 60)


@asynccontextmanager
async def paused(cluster: Cluster, whole: int) -> AsyncIterator[FakeDriver]:
    """Hold plugin and monitor off the driver during a block, by the GPU Operator's label; *whole* are all replicas."""
    driver, path = driver_of(cluster), f"/api/v1/nodes/{NODE.name}"
    await cluster.api.patch(path, {"metadata": {"labels": {LABEL: "paused-for-driver-upgrade"}}})
    await eventually_offered(cluster, 0, whole)
    await eventually(lambda: driver.clients() == (), "nobody holds the driver", seconds=60)
    yield driver
    await cluster.api.patch(path, {"metadata": {"labels": {LABEL: "true"}}})
    await eventually_offered(cluster, 1, whole)


@pytest.mark.embedded_only
async def test_driver_upgrade_needs_no_restart(cluster_of: ClusterOf) -> None:
    """The plugin and the monitor let go of the driver on the GPU Operator's label, and use the next one."""
    async with cluster_of((NODE,), ITS) as cluster:
        whole = await cluster.offered(NODE.name)
        await cluster.create(a_pod("before", command=SLEEP, gpu=1, gpumem=1000))
        await cluster.pod_in_phase("before", "Running")
        async with paused(cluster, whole) as driver:
            driver.unload()
            driver.load(NEXT)
        await cluster.create(a_pod("after", command=SLEEP, gpu=1, gpumem=1000))
        await cluster.pod_in_phase("after", "Running", 60)

        assert "Running" == (await cluster.pod("before"))["status"]["phase"]
        assert "hami_monitor_driver_available 1.0" in await cluster.metrics(f"monitor-{NODE.name}")


@pytest.mark.real_only
async def test_containers_get_the_files_of_an_upgraded_driver(real_cluster: RealCluster) -> None:
    """By native CDI, without a restart. The container from before keeps the old files."""
    async with real_cluster.reshaped((NODE,), ITS) as cluster:
        whole, node = await cluster.offered(NODE.name), cluster.control_plane.node(NODE.name)
        await cluster.create(a_pod("before", command=LIST, gpu=1, gpumem=1000))
        old = await cluster.log_line("libraries:", "before")
        async with paused(cluster, whole) as driver:
            driver.unload()
            driver.load(NEXT)
            await asyncio.to_thread(nvidia.upgrade_driver, node.machine, DRIVER, node.hardware)
        await cluster.create(a_pod("after", command=LIST, gpu=1, gpumem=1000))

        assert f"libraries: libcuda.so.{NEXT}" == await cluster.log_line("libraries:", "after")
        assert old != f"libraries: libcuda.so.{NEXT}"
        assert "Running" == (await cluster.pod("before"))["status"]["phase"]
        assert "hami_monitor_driver_available 1.0" in await cluster.metrics(f"monitor-{NODE.name}")
