"""
A Node starts no Pod on a device that does not have what the Pod was granted.
"""

import pytest

from hamicommon.model import Object
from harness.clusters.embedded import EmbeddedCluster
from harness.manifests import SLEEP, a_pod
from testbed.waiting import eventually


async def refusals(cluster: EmbeddedCluster) -> list[Object]:
    """Return the Events of starts that were refused."""
    items, _ = await cluster.api.list(f"/api/v1/namespaces/{cluster.namespace}/events")
    return [item for item in items if item["reason"] == "DeviceAboveCapacity"]


@pytest.mark.breaks("request", "both grants are planted and say less memory than the whole device")
@pytest.mark.breaks("memory", "the same memory is granted to two Pods on purpose")
@pytest.mark.embedded_only
async def test_device_that_was_granted_twice_is_started_on_once(cluster: EmbeddedCluster) -> None:
    """The second Pod waits with a sentence, and starts once the first is gone. A real cluster has a policy."""
    node = cluster.nodes[0]
    gpu = node.gpus[0]
    grant = {"hami.io/vgpu-devices-allocated": f"{gpu.uuid},NVIDIA,{gpu.memory_mib * 3 // 4},0:;"}
    spec = {"nodeName": node.name, "schedulerName": "another"}
    for name in ("first", "second"):
        await cluster.create(a_pod(name, command=SLEEP, annotations=grant, spec=spec, gpu=1))
        if name == "first":
            await cluster.pod_in_phase(name, "Running")

    (refusal,) = await eventually(lambda: refusals(cluster), "the second Pod is refused")
    assert "second" == refusal["involvedObject"]["name"]
    assert f"device {gpu.uuid} has {gpu.memory_mib} MiB of memory" in refusal["message"]
    assert "Pending" == (await cluster.pod("second"))["status"]["phase"]
    await cluster.delete_pod("first")
    await cluster.pod_in_phase("second", "Running")
