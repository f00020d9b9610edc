"""
A share by a ResourceClaim is as exact as one by HAMi's resources, on a Node whose label makes it one of kind `dra`.

kube-scheduler allocates the claim, and the real kubelet has the plugin prepare it. The chart installs all of it.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
import yaml

from hamicommon.dra.names import DRIVER
from hamicommon.model import Object
from hamicommon.wire import keys
from harness.claims import SINCE, create_claims, create_template, delete_slices, label_kind, slices, with_claim
from harness.cluster import ROOT
from harness.clusters.real import RealCluster
from harness.invariants import MIB, samples
from harness.isolation import own_namespace
from harness.manifests import a_pod
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


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def labelled(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster, whose last Node is of kind `dra`."""
    if tuple(map(int, real_cluster.control_plane.kubernetes.split("."))) < SINCE:
        pytest.skip("devices are shared by claims since Kubernetes 1.36")
    node = real_cluster.nodes[-1].name
    await real_cluster.deploy(values={"dra.enabled": True})
    await label_kind(real_cluster, node, "dra")
    await eventually(lambda: slices(real_cluster), "the Node's ResourceSlice exists", WAIT_SECONDS)
    yield real_cluster
    await label_kind(real_cluster, node, None)
    await real_cluster.node_ready(node, WAIT_SECONDS)
    await real_cluster.deploy()
    await delete_slices(real_cluster)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(labelled: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, with no Pods after the test."""
    async with own_namespace(labelled):
        yield labelled
        await labelled.delete_all_pods()


async def _claiming_pod(cluster: RealCluster, name: str, memory: str, cores: str, *command: str) -> Object:
    """Create a Pod with a share by a template's claim, and return it once it runs."""
    amounts = {"requests": {"memory": memory, "cores": cores}}
    await create_template(cluster, name, deviceClassName=DRIVER, capacity=amounts)
    await cluster.create(with_claim(a_pod(name, command=command or ("gpu-hold", "--mib", "100")), name))
    return await cluster.pod_in_phase(name, "Running", WAIT_SECONDS)


async def _are_shown(cluster: RealCluster, node: str) -> bool:
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


def _shares(cluster: RealCluster, pod: Object, container: str) -> list[str]:
    """Return memory and compute of each device of a running container."""
    env = cluster.environment(pod, container)
    limits = [env[key] for key in sorted(env) if key.startswith("CUDA_DEVICE_MEMORY_LIMIT_")]
    return [f"{limit} {env['CUDA_DEVICE_SM_LIMIT']}" for limit in limits]


@pytest.mark.breaks("environment", "a share by a claim is in no annotation, by which the judge knows grants")
async def test_container_of_a_claim_has_exactly_its_share_and_a_restarted_kubelet_keeps_it(
    cluster: RealCluster,
) -> None:
    """In its environment and in CUDA. The slice that the kubelet wipes is back, and Pods that end leave nothing."""
    node = cluster.nodes[-1].name
    small = await _claiming_pod(cluster, "small", "3000Mi", "25", "gpu-hold", "--mib", "1000")
    large = await _claiming_pod(cluster, "large", "5000Mi", "50")

    environments = [cluster.environment(pod) for pod in (small, large)]
    assert [("3000m", "25"), ("5000m", "50")] == [
        (env["CUDA_DEVICE_MEMORY_LIMIT_0"], env["CUDA_DEVICE_SM_LIMIT"]) for env in environments
    ]
    assert "allocated 1000 MiB of 3000 MiB visible" == await cluster.log_line("allocated", "small")
    await eventually(lambda: _are_shown(cluster, node), "monitor and scheduler show both shares", WAIT_SECONDS)
    [before] = await slices(cluster)

    async def is_new() -> bool:
        return [found["metadata"]["uid"] for found in await slices(cluster)] not in ([], [before["metadata"]["uid"]])

    await cluster.kill(f"kubelet-{node}")
    await asyncio.to_thread(cluster.control_plane.node(node).start_kubelet)
    await eventually(is_new, "the kubelet has wiped the ResourceSlice, and there is a new one", WAIT_SECONDS)
    await _claiming_pod(cluster, "late", "1000Mi", "5")
    assert small["status"]["containerStatuses"] == (await cluster.pod("small"))["status"]["containerStatuses"]

    for name in ("small", "large", "late"):
        await cluster.delete_pod(name)

    async def nothing_left() -> bool:
        claims = cluster.vgpu_folder(node) / "claims"
        return not [*cluster.cdi_folder(node).glob("hami.io-vgpu-claim_*"), *claims.glob("[!.]*")]

    await eventually(nothing_left, "nothing of the claims is left", WAIT_SECONDS)


@pytest.mark.breaks("environment", "a share by a claim is in no annotation, by which the judge knows grants")
@pytest.mark.parametrize("example", PROMISED)
async def test_example_gets_what_it_says(cluster: RealCluster, example: str) -> None:
    """The manifests are applied as they are."""
    assert PROMISED.keys() | OF_INSTANCES == {path.name for path in EXAMPLES.iterdir()}
    manifests = list(yaml.safe_load_all((EXAMPLES / example / "pod.yaml").read_text()))
    await create_claims(cluster, *(each for each in manifests if each["kind"] != "Pod"))
    pods = [each for each in manifests if each["kind"] == "Pod"]
    for pod in pods:
        await cluster.create(pod)

    found = {}
    for pod in pods:
        running = await cluster.pod_in_phase(pod["metadata"]["name"], "Running", WAIT_SECONDS)
        for container in pod["spec"]["containers"]:
            name = pod["metadata"]["name"]
            assert await cluster.log_line("allocated", name, container["name"])
            found[f"{name}/{container['name']}"] = _shares(cluster, running, container["name"])
    assert PROMISED[example] == found


async def test_label_changes_the_kind_of_a_node_and_back(cluster: RealCluster) -> None:
    """The kubelet has replicas or the API server a slice, and the chart's rights and policies are enough for both."""
    node = cluster.nodes[-1].name
    await label_kind(cluster, node, None)
    await cluster.node_ready(node, WAIT_SECONDS)
    kind = (await cluster.api.get(f"/api/v1/nodes/{node}"))["metadata"]["annotations"].get(keys.NODE_KIND)
    assert kind is None

    async def is_dra() -> bool:
        found = (await cluster.api.get(f"/api/v1/nodes/{node}"))["metadata"]["annotations"]
        return found.get(keys.NODE_KIND) == "dra" and bool(await slices(cluster))

    await label_kind(cluster, node, "dra")
    await eventually(is_dra, f"{node} is of kind dra", WAIT_SECONDS)
