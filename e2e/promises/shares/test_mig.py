"""
A Pod that asks for part of a GPU in MIG mode gets an instance, which is destroyed when the Pod ends.
"""

import asyncio
import json
from pathlib import Path

import pytest

from hamicommon.model import Object
from harness.cluster import ROOT, Cluster, ClusterOf, Settings
from harness.clusters import embedded
from harness.load import kept_running
from harness.manifests import SLEEP, a_container, a_pod
from testbed.driver.hardware import FakeNode
from testbed.driver.mig import instances as mig_instances
from testbed.waiting import eventually

HOPPER = FakeNode.of("node-a", "NVIDIA H100 80GB HBM3", 81920, 1)
AMPERE = FakeNode.of("node-a", "NVIDIA A100-SXM4-80GB", 81920, 1)
"""It is switched to MIG only while no other process holds the driver, so the monitor has to let go of it."""
MIG = {"nvidia.com/vgpu-mode": "mig"}
ALLOWLIST = "  migProfileAllowlist: [{models: [H100, A100-SXM4-80GB], profiles: [1g.10gb, 2g.20gb, 7g.80gb]}]\n"
ALLOCATIONS = "hami.io/vgpu-mig-allocations"
DRIVER = ROOT / "build/native/fake_driver"

pytestmark = pytest.mark.embedded_only


def settings(folder: Path) -> Settings:
    """Return settings of a cluster whose Node is in mode `mig`."""
    device_config, node_config = folder / "device-config.yaml", folder / "config.json"
    device_config.write_text(embedded.DEVICE_CONFIG.read_text() + ALLOWLIST)
    node_config.write_text(json.dumps({"nodeconfig": [{"name": HOPPER.name, "operatingmode": "mig"}]}))
    return Settings(device_config=device_config, node_config=node_config)


def instance(pod: Object) -> str:
    """Return the MIG UUID in the annotation of a Pod."""
    [promise] = json.loads(pod["metadata"]["annotations"][ALLOCATIONS])
    return str(promise["migUUID"])


async def until_no_instance_is_left(cluster: Cluster) -> None:
    """Wait until the plugin holds no MIG instance any more."""
    journal = cluster.vgpu_folder(HOPPER.name) / "mig-instances.json"

    async def probe() -> bool:
        return not json.loads(journal.read_text())["instances"]

    await eventually(probe, "no MIG instance is left", 30.0)


@pytest.mark.parametrize("node", [HOPPER, AMPERE], ids=["Hopper", "Ampere"])
async def test_pod_gets_a_mig_instance_and_the_instance_goes_with_it(
    node: FakeNode, cluster_of: ClusterOf, tmp_path: Path
) -> None:
    """The scheduler takes the smallest profile that is large enough; the container has no limits."""
    async with cluster_of((node,), settings(tmp_path)) as cluster:
        await cluster.create(a_pod("p", annotations=MIG, command=SLEEP, gpu=1, gpumem=12000))
        pod = await cluster.pod_in_phase("p", "Running")
        env = cluster.environment(pod)

        [promise] = json.loads(pod["metadata"]["annotations"][ALLOCATIONS])
        assert ("2g.20gb", node.gpus[0].uuid) == (promise["profile"], promise["gpuUUID"])
        assert env["NVIDIA_VISIBLE_DEVICES"] == instance(pod)
        assert [] == [name for name in env if name.startswith("CUDA_")]
        await cluster.delete_pod("p")
        await until_no_instance_is_left(cluster)


async def test_killed_plugin_neither_leaks_nor_shares_an_instance(cluster_of: ClusterOf, tmp_path: Path) -> None:
    """It is killed again and again while Pods start and end; each Pod has its own instance in the end."""
    names = ("a", "b", "c")
    async with cluster_of((HOPPER,), settings(tmp_path)) as cluster:
        starting = asyncio.gather(*(kept_running(cluster, name, 120.0, MIG) for name in names))
        for turn in range(4):
            await asyncio.sleep(0.4 * turn)
            await cluster.kill("plugin-node-a")
            await cluster.restart("plugin-node-a")
        await starting
        pods = [await cluster.pod_in_phase(name, "Running") for name in names]
        visible = [cluster.environment(pod)["NVIDIA_VISIBLE_DEVICES"] for pod in pods]

        assert [instance(await cluster.pod(name)) for name in names] == visible
        assert len(names) == len(set(visible))
        for name in names:
            await cluster.delete_pod(name)
            await cluster.kill("plugin-node-a")
            await cluster.restart("plugin-node-a")
        await until_no_instance_is_left(cluster)


@pytest.mark.parametrize(("strategy", "resource"), [("single", "nvidia.com/gpu"), ("mixed", "nvidia.com/mig-1g.10gb")])
async def test_pods_get_the_instances_that_an_administrator_made(
    cluster_of: ClusterOf, strategy: str, resource: str
) -> None:
    """Each Pod has one of its own, counted under the usual resource or under that of its size. They stay afterwards."""
    settings = Settings(plugin_flags=("--cdi-generator=", f"--mig-strategy={strategy}"))
    async with cluster_of((HOPPER,), settings) as cluster:
        hardware = cluster.driver_folder(HOPPER.name)
        made = mig_instances.make_two(DRIVER, hardware)
        await cluster.kill("plugin-node-a")
        await cluster.restart("plugin-node-a")
        await eventually(lambda: _offers(cluster, resource), f"the Node offers two of {resource}", 30.0)
        for name in "pq":
            container = a_container(command=SLEEP)
            container["resources"] = {"limits": {resource: "1"}}
            await cluster.create(a_pod(name, containers=[container]))
        pods = [await cluster.pod_in_phase(name, "Running") for name in "pq"]
        environments = [cluster.environment(pod) for pod in pods]
        await cluster.delete_all_pods()

        assert made.keys() == {env["NVIDIA_VISIBLE_DEVICES"] for env in environments}
        assert [] == [name for env in environments for name in env if name.startswith("CUDA_")]
        assert made == mig_instances.instances(DRIVER, hardware)


async def _offers(cluster: Cluster, resource: str) -> bool:
    node = await cluster.api.get(f"/api/v1/nodes/{HOPPER.name}")
    return str(node["status"]["allocatable"].get(resource)) == "2"
