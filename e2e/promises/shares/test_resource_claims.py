"""
A share by a ResourceClaim is as exact as one by HAMi's resources, on a Node whose label makes it one of kind `dra`.

kube-scheduler allocates the claim, and the real kubelet has the plugin prepare it. The chart installs all of it.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from hamicommon.dra.names import DRA
from hamicommon.model import Object
from hamicommon.wire import keys
from harness.cluster import ROOT
from harness.clusters.claiming import ClaimingCluster
from harness.invariants import MIB, samples
from harness.isolation import own_namespace
from harness.manifests import a_pod
from promises.failures.test_kubelet_fails import runs
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]

EXAMPLES = ROOT / "examples/dra"
WAIT_SECONDS = 90
PROMISED = {
    "share": {"share/main": ["3000m 25"]},
    "select": {"select/main": ["2000m 10"]},
    "two-devices": {"two-devices/main": ["2000m 10", "2000m 10"]},
    "many-containers": {"many-containers/train": ["4000m 40"], "many-containers/serve": ["1000m 10"]},
    "alternatives": {"alternatives/main": ["6144m 50"]},
    "shared-claim": {"first/main": ["4000m 30"], "second/main": ["4000m 30"]},
}
"""By example: the memory and compute of each device of each container."""
OF_INSTANCES = {"mig-instance"}
"""Examples for Nodes in mode `mig`, which `test_mig_claims` runs."""


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(claiming_cluster: ClaimingCluster) -> AsyncIterator[ClaimingCluster]:
    """The real cluster with a Node of kind `dra`, in a namespace of its own, with no Pods after the test."""
    async with own_namespace(claiming_cluster):
        yield claiming_cluster
        await claiming_cluster.delete_all_pods()


async def _running(cluster: ClaimingCluster, name: str, memory_mib: int, percent: int, mib: int = 100) -> Object:
    """Create a Pod with a share by a template's claim that allocates *mib*, and return it once it runs."""
    command = ("gpu-hold", "--mib", str(mib))
    await cluster.create(a_pod(name, command=command, gpu=1, gpumem=memory_mib, gpucores=percent))
    return await cluster.pod_in_phase(name, "Running", WAIT_SECONDS)


async def _are_shown(cluster: ClaimingCluster, node: str) -> bool:
    """
    Return whether the monitor shows the shares of the Pods `small` and `large` with what one uses, and finds nothing
    outside a grant; and whether the scheduler counts their claims.
    """
    monitor = samples(await cluster.metrics(f"monitor-{node}"))
    limits = {labels["pod"]: value for labels, value in monitor["hami_vgpu_memory_limit_bytes"]}
    used = {labels["pod"]: value for labels, value in monitor["hami_vgpu_memory_used_bytes"]}
    outside = [labels for labels, value in monitor["hami_monitor_watchdog_findings"] if value]
    counted = [value for _, value in samples(await cluster.metrics("scheduler"))["hami_scheduler_claim_memory_bytes"]]
    promised = {"small": 3000 * MIB, "large": 5000 * MIB}
    is_shown = limits == promised and used["small"] >= 1000 * MIB and not outside
    return is_shown and sorted(counted) == sorted(promised.values())


async def test_container_of_a_claim_has_exactly_its_share_and_a_restarted_kubelet_keeps_it(
    cluster: ClaimingCluster,
) -> None:
    """In its environment and in CUDA. The slice that the kubelet wipes is back, and Pods that end leave nothing."""
    node = cluster.node
    small = await _running(cluster, "small", 3000, 25, mib=1000)
    large = await _running(cluster, "large", 5000, 50)

    environments = [cluster.environment(pod) for pod in (small, large)]
    assert [("3000m", "25"), ("5000m", "50")] == [
        (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"]) for env in environments
    ]
    assert "allocated 1000 MiB of 3000 MiB visible" == await cluster.log_line("allocated", "small")
    await eventually(lambda: _are_shown(cluster, node), "monitor and scheduler show both shares", WAIT_SECONDS)
    [before] = await cluster.slices()

    async def is_new() -> bool:
        return [found["metadata"]["uid"] for found in await cluster.slices()] not in ([], [before["metadata"]["uid"]])

    await cluster.kill(f"kubelet-{node}")
    await asyncio.to_thread(cluster.control_plane.node(node).start_kubelet)
    await eventually(is_new, "the kubelet has wiped the ResourceSlice, and there is a new one", WAIT_SECONDS)
    await _running(cluster, "late", 1000, 5)
    assert runs(small) == runs(await cluster.pod("small"))

    for name in ("small", "large", "late"):
        await cluster.delete_pod(name)
    await cluster.nothing_left()


@pytest.mark.parametrize("example", PROMISED)
async def test_example_gets_what_it_says(cluster: ClaimingCluster, example: str) -> None:
    """The manifests are applied as they are."""
    assert PROMISED.keys() | OF_INSTANCES == {path.name for path in EXAMPLES.iterdir()}
    manifests = list(yaml.safe_load_all((EXAMPLES / example / "pod.yaml").read_text()))
    for each in manifests:
        if each["kind"] != "Pod":
            await cluster.api.create(f"{cluster.in_namespace}/{each['kind'].lower()}s", each)
    pods = [each for each in manifests if each["kind"] == "Pod"]
    for pod in pods:
        await cluster.create(pod)

    found = {}
    for pod in pods:
        running = await cluster.pod_in_phase(pod["metadata"]["name"], "Running", WAIT_SECONDS)
        for container in pod["spec"]["containers"]:
            name = pod["metadata"]["name"]
            assert await cluster.log_line("allocated", name, container["name"])
            found[f"{name}/{container['name']}"] = cluster.shares_in(running, container["name"])
    assert PROMISED[example] == found


async def test_label_changes_the_kind_of_a_node_and_back(cluster: ClaimingCluster) -> None:
    """The kubelet has replicas or the API server a slice, and the chart's rights and policies are enough for both."""
    node = cluster.node
    await cluster.label(None)
    await cluster.node_ready(node, WAIT_SECONDS)
    kind = (await cluster.api.get(f"/api/v1/nodes/{node}"))["metadata"]["annotations"].get(keys.NODE_KIND)
    assert kind is None

    async def is_dra() -> bool:
        found = (await cluster.api.get(f"/api/v1/nodes/{node}"))["metadata"]["annotations"]
        return found.get(keys.NODE_KIND) == "dra" and bool(await cluster.slices())

    await cluster.label(DRA)
    await eventually(is_dra, f"{node} is of kind dra", WAIT_SECONDS)
