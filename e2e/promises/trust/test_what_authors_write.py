"""
What the author of a Pod writes on it chooses among devices with room, and gives nothing that was not granted.
"""

import json

import pytest

from hamicommon.vendors import nvidia
from hamicommon.wire import keys
from harness.cluster import Cluster, ClusterOf, Settings
from harness.manifests import SLEEP, a_container, a_pod
from testbed.driver.hardware import TWO_NODES
from testbed.waiting import eventually

CARD, OTHER = TWO_NODES[0].gpus
THERE = {"nvidia.com/use-gpuuuid": CARD.uuid}
WISHES = (*nvidia.vendor(nvidia.NvidiaConfig()).author_annotations, *keys.AUTHOR_KEYS)
GRANT = "hami.io/vgpu-devices-allocated"


def path_of(cluster: Cluster, name: str) -> str:
    """Return the path of a Pod."""
    return f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"


async def refused(cluster: Cluster, name: str) -> None:
    """Wait until an Event says that a Pod does not fit."""

    async def is_said() -> bool:
        return "FilteringFailed" in {event["reason"] for event in await cluster.events(name)}

    await eventually(is_said, f"an Event says that {name} does not fit")


async def test_wishes_changed_after_the_bind_change_nothing(cluster: Cluster) -> None:
    """The grant stays, the container keeps it, and a scheduler that starts anew counts it on the device it names."""
    share = CARD.memory_mib * 3 // 4
    await cluster.create(a_pod("granted", command=SLEEP, annotations=THERE, gpu=1, gpumem=share))
    before = await cluster.pod_in_phase("granted", "Running")
    environment = cluster.environment(before)

    wishes = dict.fromkeys(WISHES, OTHER.uuid) | {keys.ENFORCEMENT: keys.ENFORCEMENT_DRIVER}
    await cluster.api.patch(path_of(cluster, "granted"), {"metadata": {"annotations": wishes}})
    await cluster.kill("scheduler")
    await cluster.restart("scheduler")
    await cluster.create(a_pod("rest", command=SLEEP, annotations=THERE, gpu=1, gpumem=CARD.memory_mib - share))
    rest = await cluster.pod_in_phase("rest", "Running", 60)
    await cluster.create(a_pod("more", command=SLEEP, annotations=THERE, gpu=1, gpumem=100))
    await refused(cluster, "more")

    after = await cluster.pod("granted")
    assert f"{CARD.uuid},NVIDIA,{share},0:;" == after["metadata"]["annotations"][GRANT]
    assert environment == cluster.environment(after)
    assert rest["metadata"]["annotations"][GRANT].startswith(CARD.uuid)
    assert "Pending" == (await cluster.pod("more"))["status"]["phase"]


async def test_amounts_in_the_annotation_of_a_pod_count_like_its_limits(cluster: Cluster) -> None:
    """They are granted, enforced and taken from the device, and a change after the bind changes nothing."""
    share = CARD.memory_mib * 3 // 4
    amounts = json.dumps({"main": {"nvidia.com/gpumem": str(share)}})
    await cluster.create(a_pod("moved", command=SLEEP, annotations={**THERE, keys.DEVICE_AMOUNTS: amounts}, gpu=1))
    before = await cluster.pod_in_phase("moved", "Running", 60)
    less = {keys.DEVICE_AMOUNTS: json.dumps({"main": {"nvidia.com/gpumem": "1"}})}
    await cluster.api.patch(path_of(cluster, "moved"), {"metadata": {"annotations": less}})
    await cluster.kill("scheduler")
    await cluster.restart("scheduler")
    await cluster.create(a_pod("more", command=SLEEP, annotations=THERE, gpu=1, gpumem=CARD.memory_mib - share + 1))
    await refused(cluster, "more")

    assert f"{CARD.uuid},NVIDIA,{share},0:;" == before["metadata"]["annotations"][GRANT]
    assert f"{share}m" == cluster.environment(before)["CUDA_DEVICE_MEMORY_LIMIT_0"]


async def test_pod_that_writes_when_there_was_room_gets_none(cluster: Cluster) -> None:
    """The scheduler notes that time to wake a Pod that waits. Its author can do no more by it."""
    await cluster.create(a_pod("waiting", command=SLEEP, gpu=1, gpumem=10 * CARD.memory_mib))
    await refused(cluster, "waiting")

    for time in ("4102444800", "-1", "never"):
        await cluster.api.patch(path_of(cluster, "waiting"), {"metadata": {"annotations": {keys.ROOM_TIME: time}}})
    await cluster.create(a_pod("other", command=SLEEP, gpu=1, gpumem=100))
    await cluster.pod_in_phase("other", "Running", 60)

    waiting = await cluster.pod("waiting")
    assert "nodeName" not in waiting["spec"]
    assert GRANT not in waiting["metadata"]["annotations"]


OWN_VALUES = {
    "CUDA_DEVICE_MEMORY_LIMIT": "40000m",
    "CUDA_DEVICE_MEMORY_LIMIT_0": "40000m",
    "CUDA_DEVICE_SM_LIMIT": "100",
    "CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/mine.cache",
    "CUDA_OVERSUBSCRIBE": "true",
    "HAMI_DEVICE_UUIDS": OTHER.uuid,
    "NVIDIA_VISIBLE_DEVICES": "all",
}
"""What a Pod may set of that which the device plugin sets."""


@pytest.mark.parametrize("allocation", ["identity", "lock"])
async def test_own_values_of_limits_and_devices_do_not_count(cluster_of: ClusterOf, allocation: str) -> None:
    """A program sees one device with the memory of its share, and an allocation beyond it fails."""
    container = a_container(
        command=("gpu-hold", "--all-devices", "--mib", "900", "--then-mib", "1000"), gpu=1, gpumem=1000
    )
    container["env"] = [{"name": name, "value": value} for name, value in OWN_VALUES.items()]
    async with cluster_of(TWO_NODES, Settings(allocation=allocation)) as cluster:
        await cluster.create(a_pod("own", [container], annotations=THERE))
        await cluster.log_line("cuMemAlloc", "own")

        said = await cluster.log("own")

    assert f"{CARD.uuid} has 1000 MiB" in said
    assert OTHER.uuid not in said
    assert "cuMemAlloc(1000 MiB): CUDA_ERROR_OUT_OF_MEMORY" in said


async def test_pod_that_the_webhook_ignores_gets_what_it_asks(cluster: Cluster) -> None:
    """It names the scheduler itself. A privileged container with a share does not start, and an Event says why."""
    for name, container in (
        ("ordinary", a_container(command=SLEEP, gpu=1, gpumem=1000)),
        ("privileged", {**a_container(command=SLEEP, gpu=1, gpumem=1000), "securityContext": {"privileged": True}}),
    ):
        pod = a_pod(name, [container], spec={"schedulerName": "hami-scheduler"})
        pod["metadata"]["labels"] = {keys.WEBHOOK_LABEL: "ignore"}
        await cluster.create(pod)

    ordinary = await cluster.pod_in_phase("ordinary", "Running", 60)
    assert "1000m" == cluster.environment(ordinary)["CUDA_DEVICE_MEMORY_LIMIT_0"]

    async def says_why() -> bool:
        return any("is privileged" in event["message"] for event in await cluster.events("privileged"))

    await eventually(says_why, "an Event of the privileged Pod says why it does not start", 60)
    assert "Running" != (await cluster.pod("privileged"))["status"]["phase"]
