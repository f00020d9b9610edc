"""
The same Pods run on Nodes with a device plugin and on Nodes with ResourceClaims, with exactly the shares they ask for.

The webhook moves the amounts out of the limits, kube-scheduler gives tokens of a Node of kind `dra`, and our scheduler
grants devices on both kinds from one ledger.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hamicommon.dra.names import TOKEN_CLASS
from hamicommon.dra.tokens import is_token
from hamicommon.model import Object
from hamicommon.wire import keys
from harness.claims import API, is_new_enough, label_kind, slices
from harness.clusters.real import RealCluster
from harness.isolation import own_namespace
from harness.manifests import a_container, a_pod
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]

WAIT_SECONDS = 90
SHARE: Object = {"gpu": 1, "gpumem": 3000, "gpucores": 25}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def mixed(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster, whose last Node is of kind `dra`, and gives its devices to Pods that ask by resources."""
    if not is_new_enough(real_cluster.control_plane.kubernetes):
        pytest.skip("kube-scheduler makes claims for resources since Kubernetes 1.36")
    node = real_cluster.nodes[-1].name
    await real_cluster.deploy(values={"dra.enabled": True, "dra.extendedResource": True})
    await label_kind(real_cluster, node, "dra")
    await _forget_device_plugin(real_cluster, node)
    await eventually(lambda: _offers_tokens(real_cluster, node), f"{node} offers tokens", WAIT_SECONDS)
    yield real_cluster
    await label_kind(real_cluster, node, None)
    await real_cluster.node_ready(node, WAIT_SECONDS)
    await real_cluster.deploy()
    await real_cluster.api.delete_if_exists(f"{API}/deviceclasses/{TOKEN_CLASS}", 0)


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(mixed: RealCluster) -> AsyncIterator[RealCluster]:
    """The same in a namespace of its own, with no Pods after the test."""
    async with own_namespace(mixed):
        yield mixed
        await mixed.delete_all_pods()


async def _forget_device_plugin(cluster: RealCluster, node: str) -> None:
    """
    Let the kubelet of *node* be one that never had a device plugin.

    It would forget by itself five minutes after the plugin has ended.
    """

    async def is_dra() -> bool:
        found = (await cluster.api.get(f"/api/v1/nodes/{node}"))["metadata"]["annotations"]
        return bool(found.get(keys.NODE_KIND) == "dra")

    await eventually(is_dra, f"{node} is of kind dra", WAIT_SECONDS)
    await cluster.kill(f"kubelet-{node}")
    machine = cluster.control_plane.node(node)
    machine.path("/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint").unlink()
    await asyncio.to_thread(machine.start_kubelet)
    gone = {"nvidia.com/gpu": None}
    status = {"status": {"capacity": gone, "allocatable": gone}}
    await cluster.api.patch(f"/api/v1/nodes/{node}/status", status)


async def _offers_tokens(cluster: RealCluster, node: str) -> bool:
    own = [item["spec"] for item in await slices(cluster) if item["spec"]["nodeName"] == node]
    return any(is_token(device["name"]) for spec in own for device in spec.get("devices", ()))


def _on(node: str) -> Object:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


async def _runs(cluster: RealCluster, pod: Object) -> Object:
    await cluster.create(pod)
    return await cluster.pod_in_phase(pod["metadata"]["name"], "Running", WAIT_SECONDS)


async def test_same_pod_gets_the_same_share_on_both_kinds_of_nodes(cluster: RealCluster) -> None:
    """Seen in its environment and by CUDA. On one kind it has a claim, on the other none."""
    for name, node in (("on-plugin", cluster.nodes[0].name), ("on-dra", cluster.nodes[-1].name)):
        pod = await _runs(cluster, a_pod(name, command=("gpu-hold", "--mib", "1000"), spec=_on(node), **SHARE))
        assert ["3000m 25"] == cluster.shares_in(pod), name
        assert "allocated 1000 MiB of 3000 MiB visible" == await cluster.log_line("allocated", name)
        assert ("extendedResourceClaimStatus" in pod["status"]) is (name == "on-dra")


async def test_containers_and_devices_on_a_dra_node_have_their_own_shares(cluster: RealCluster) -> None:
    """Two containers with different shares, two devices in one container, and a whole device."""
    spec = _on(cluster.nodes[-1].name)
    hold = ("gpu-hold", "--mib", "100")
    containers = [
        a_container("train", command=hold, gpu=1, gpumem=4000, gpucores=40),
        a_container("serve", command=hold, gpu=1, gpumem=1000, gpucores=10),
    ]
    several = await _runs(cluster, a_pod("several", containers, spec=spec))
    double = await _runs(cluster, a_pod("double", command=hold, spec=spec, gpu=2, gpumem=2000, gpucores=10))

    assert ["4000m 40"] == cluster.shares_in(several, "train")
    assert ["1000m 10"] == cluster.shares_in(several, "serve")
    assert ["2000m 10", "2000m 10"] == cluster.shares_in(double)
    granted = double["metadata"]["annotations"]["hami.io/vgpu-devices-allocated"]
    assert 2 == len({share.split(",")[0] for share in granted.strip(":;").split(":")})


async def test_running_pod_keeps_its_share_when_kubelet_and_plugin_restart(cluster: RealCluster) -> None:
    """Its containers run on, a later Pod starts, and nothing of ended Pods is left on the Node."""
    node = cluster.nodes[-1].name
    before = await _runs(cluster, a_pod("before", command=("gpu-hold", "--mib", "100"), spec=_on(node), **SHARE))
    await cluster.kill(f"kubelet-{node}")
    await asyncio.to_thread(cluster.control_plane.node(node).start_kubelet)
    await eventually(lambda: _offers_tokens(cluster, node), "tokens are offered again", WAIT_SECONDS)
    after = await _runs(cluster, a_pod("after", command=("gpu-hold", "--mib", "100"), spec=_on(node), **SHARE))

    assert ["3000m 25"] == cluster.shares_in(after)
    assert before["status"]["containerStatuses"] == (await cluster.pod("before"))["status"]["containerStatuses"]

    for name in ("before", "after"):
        await cluster.delete_pod(name)
    await eventually(
        lambda: _is_empty(cluster, node, {before["metadata"]["uid"], after["metadata"]["uid"]}),
        "no spec of the Pods is left",
        WAIT_SECONDS,
    )


async def _is_empty(cluster: RealCluster, node: str, uids: set[str]) -> bool:
    return not [path for path in cluster.cdi_folder(node).iterdir() if any(uid in path.name for uid in uids)]


async def test_pod_without_room_on_either_kind_waits_and_is_told_of_both(cluster: RealCluster) -> None:
    """And starts once a Pod has ended, on whichever Node has room then."""
    offered = 0
    for node in cluster.nodes:
        listed = (await cluster.api.get(f"/api/v1/nodes/{node.name}"))["metadata"]["annotations"]
        offered += listed["hami.io/node-nvidia-register"].count('"id"')
    for number in range(offered):
        await _runs(cluster, a_pod(f"whole-{number}", gpu=1))
    await cluster.create(a_pod("waiting", gpu=1))

    async def is_refused() -> bool:
        conditions = (await cluster.pod("waiting"))["status"].get("conditions") or ()
        return any(found["type"] == "PodScheduled" and found["status"] == "False" for found in conditions)

    await eventually(is_refused, "the last Pod waits", WAIT_SECONDS)
    await cluster.delete_pod("whole-0")
    await cluster.pod_in_phase("waiting", "Running", WAIT_SECONDS)


async def test_init_container_with_a_share_of_its_own_goes_to_a_node_with_a_device_plugin(cluster: RealCluster) -> None:
    """A claim would give both containers one request; on a Node of kind `dra` such a Pod waits with the reason."""
    init = [a_container("prepare", command=("gpu-hold", "--mib", "10", "--seconds", "0"), gpu=1, gpumem=500)]
    await cluster.create(a_pod("init", init_containers=init, spec=_on(cluster.nodes[-1].name), **SHARE))

    async def is_told() -> bool:
        conditions = (await cluster.pod("init"))["status"].get("conditions") or ()
        return any("one request for an init container" in (found.get("message") or "") for found in conditions)

    await eventually(is_told, "the reason is in the Pod's status", WAIT_SECONDS)
