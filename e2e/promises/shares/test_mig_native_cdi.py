"""
A container gets exactly its MIG instance, with plain runc and with NVIDIA's runtime in each mode.

By CDI alone where the runtime has it, with NVIDIA's own generator. The driver has made no device file of an instance,
so containers get them by their numbers.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from controlplane import nvidia
from controlplane.cluster import DRIVER
from harness.cluster import Settings
from harness.clusters.real import RealCluster
from harness.manifests import a_container, a_pod
from testbed.driver.hardware import FakeNode
from testbed.driver.mig import instances as mig_instances
from testbed.driver.mig.files import device_files
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3"
MIG = {"nvidia.com/vgpu-mode": "mig"}
ALLOCATIONS = "hami.io/vgpu-mig-allocations"
SMALL = "nvidia.com/mig-1g.10gb"
KINDS = (nvidia.PLAIN, nvidia.JIT_CDI, nvidia.HOST_SPEC, nvidia.OPERATOR, nvidia.LEGACY)
LOOK = """
import glob, os, time
from ctypes import CDLL, byref, c_int, c_size_t, create_string_buffer
cuda, count, memory, name = CDLL("libcuda.so.1"), c_int(), c_size_t(), create_string_buffer(96)
for status in cuda.cuInit(0), cuda.cuDeviceGetCount(byref(count)), cuda.cuDeviceGetName(name, 96, 0):
    assert status == 0, status
assert cuda.cuDeviceTotalMem_v2(byref(memory), 0) == 0
files = sorted(glob.glob("/dev/nvidia?") + glob.glob("/dev/nvidia-caps/*"), key=lambda path: (len(path), path))
visible = os.environ["NVIDIA_VISIBLE_DEVICES"]
print("sees:", count.value, name.value.decode(), memory.value >> 20, "MiB", visible, *files)
time.sleep(3600)
"""
SHOW = ("python", "-uc", LOOK)


@asynccontextmanager
async def mig_node(
    real_cluster: RealCluster, kind: nvidia.NodeKind, model: str, **values: object
) -> AsyncIterator[RealCluster]:
    """Run a cluster during a block with one Node of *kind* with one GPU, whose plugin has *values* of the chart."""
    node = replace(FakeNode.of("node-mig", model, 81920, 1), kind=kind.name, shows_mig=True)
    chart = {f"devicePlugin.{name}": value for name, value in values.items()}
    root = "" if kind.is_legacy else nvidia.DRIVER_ROOT
    async with real_cluster.reshaped((node,), Settings(driver_root=root, values=chart)) as cluster:
        yield cluster


async def restart_plugin(cluster: RealCluster) -> None:
    """Kill the Node's plugin, and wait until it serves again."""
    await cluster.kill("plugin-node-mig")
    await cluster.restart("plugin-node-mig")


def hardware(cluster: RealCluster) -> Path:
    """Return where this machine keeps the state of the Node's driver."""
    return cluster.driver_folder(cluster.nodes[0].name)


def instances(cluster: RealCluster) -> dict[str, int]:
    """Return the number of each instance by its UUID, as the driver says."""
    return mig_instances.instances(DRIVER, hardware(cluster))


def sight(kind: nvidia.NodeKind, name: str, mib: int, uuid: str, instance: int) -> str:
    """Return what a container with one instance prints on a Node of *kind*."""
    # The stand-in for the mode `legacy` adds no device files.
    given = uuid if kind.is_legacy else " ".join(["void", *device_files(0, instance)])
    return f"sees: 1 {name} {mib} MiB {given}"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_pods_get_new_instances_which_go_with_them(real_cluster: RealCluster, kind: nvidia.NodeKind) -> None:
    """
    Of different sizes. The scheduler takes the smallest profile that is large enough.

    The plugin has restarted since it switched MIG on. NVIDIA's runtime then finds neither a whole GPU nor an instance.
    """
    config = {"nodeconfig": [{"name": "node-mig", "operatingmode": "mig"}]}
    async with mig_node(real_cluster, kind, A100, nodeConfig=config) as cluster:
        await restart_plugin(cluster)
        for name, mib in ("p", 12000), ("q", 5000):
            await cluster.create(a_pod(name, annotations=MIG, command=SHOW, gpu=1, gpumem=mib))
        lines = {name: await cluster.log_line("sees:", name) for name in "pq"}

        for name, profile, mib in ("p", "2g.20gb", 19968), ("q", "1g.10gb", 9728):
            [promise] = json.loads((await cluster.pod(name))["metadata"]["annotations"][ALLOCATIONS])
            assert profile == promise["profile"]
            assert instances(cluster)[promise["migUUID"]] == promise["gpuInstanceID"]
            number = promise["gpuInstanceID"]
            assert sight(kind, f"{A100} MIG {profile}", mib, promise["migUUID"], number) == lines[name]
        assert 2 == len(instances(cluster))
        await cluster.delete_pod("p")
        await eventually(lambda: len(instances(cluster)) == 1, "the ended Pod's instance is destroyed", 60)
        await cluster.delete_pod("q")
        await eventually(lambda: instances(cluster) == {}, "no instance is left", 60)


@pytest.mark.parametrize(
    ("kind", "strategy", "resource"),
    [
        pytest.param(nvidia.PLAIN, "mixed", SMALL, id="mixed-plain"),
        pytest.param(nvidia.HOST_SPEC, "mixed", SMALL, id="mixed-host-spec"),
        pytest.param(nvidia.PLAIN, "single", "nvidia.com/gpu", id="single-plain"),
        pytest.param(nvidia.LEGACY, "single", "nvidia.com/gpu", id="single-legacy"),
    ],
)
async def test_pods_get_the_instances_that_an_administrator_made(
    real_cluster: RealCluster, kind: nvidia.NodeKind, strategy: str, resource: str
) -> None:
    """The kubelet counts them, and they stay when the Pods have ended."""
    async with mig_node(real_cluster, kind, H100, migStrategy=strategy) as cluster:
        made = mig_instances.make_two(DRIVER, hardware(cluster))
        await restart_plugin(cluster)

        async def is_offered() -> bool:
            node = await cluster.api.get("/api/v1/nodes/node-mig")
            return str(node["status"]["allocatable"].get(resource)) == "2"

        await eventually(is_offered, "the Node offers both instances", 60)
        for name in "pq":
            container = a_container(command=SHOW)
            container["resources"] = {"limits": {resource: "1"}}
            await cluster.create(a_pod(name, containers=[container]))
        lines = {await cluster.log_line("sees:", name) for name in "pq"}
        await cluster.delete_all_pods()

        assert {sight(kind, f"{H100} MIG 1g.10gb", 9984, uuid, number) for uuid, number in made.items()} == lines
        assert made == instances(cluster)
