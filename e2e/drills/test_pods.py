"""
Pods that get no share.
"""

from drills.promises import REJECTED, UNLIMITED, Promise, drill_without_share
from hamicommon.model import Object
from harness.cluster import Cluster
from harness.manifests import a_container, a_pod
from minicluster.client import ApiError

ALL = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
PRIVILEGED = {"privileged": True}


async def outcome(cluster: Cluster, container: Object) -> Promise:
    """Create a Pod with a container that looks at all devices, and return what it gets of them."""
    try:
        await cluster.create(a_pod("p", containers=[container]))
    except ApiError as error:
        if "is privileged" not in str(error):
            raise
        return REJECTED
    pod = await cluster.pod_in_phase("p", "Running")
    assert "CUDA_DEVICE_MEMORY_LIMIT_0" not in cluster.environment(pod)
    await cluster.log_line("allocated 12000 MiB", "p")
    lines = (await cluster.log("p")).splitlines()
    [node] = [node for node in cluster.nodes if node.name == pod["spec"]["nodeName"]]
    assert [f"{gpu.uuid} has {gpu.memory_mib} MiB" for gpu in node.gpus] == [line for line in lines if " has " in line]
    return UNLIMITED


@drill_without_share("image with NVIDIA_VISIBLE_DEVICES=all, no request", UNLIMITED)
async def test_image_that_asks_for_all_devices(cluster: Cluster, promise: Promise) -> None:
    """NVIDIA's runtime gives devices by this variable, unless it is told not to."""
    looking = a_container(command=("gpu-hold", "--all-devices", "--mib", "12000"))
    assert promise is await outcome(cluster, {**looking, "env": ALL})


@drill_without_share("privileged container, no request", UNLIMITED)
async def test_privileged_container(cluster: Cluster, promise: Promise) -> None:
    """It has every device file, and may lift limits that root has set."""
    looking = a_container(command=("gpu-hold", "--all-devices", "--mib", "12000"))
    assert promise is await outcome(cluster, {**looking, "env": ALL, "securityContext": PRIVILEGED})


@drill_without_share("privileged container with a share", REJECTED)
async def test_privileged_container_with_a_share(cluster: Cluster, promise: Promise) -> None:
    """The webhook rejects it at admission."""
    greedy = a_container(gpu=1, gpumem=1000)
    assert promise is await outcome(cluster, {**greedy, "securityContext": PRIVILEGED})
