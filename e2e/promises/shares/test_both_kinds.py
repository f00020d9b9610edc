"""
The same Pods run on Nodes with a device plugin and on Nodes with ResourceClaims, with exactly the shares they ask for.

The webhook moves the amounts out of the limits, kube-scheduler gives tokens of a Node of kind `dra`, and our scheduler
grants devices on both kinds from one ledger.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hamicommon.model import Object
from harness.clusters.tokens import TokenCluster
from harness.isolation import own_namespace
from harness.manifests import a_container, a_pod
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]

WAIT_SECONDS = 90
SHARE: Object = {"gpu": 1, "gpumem": 3000, "gpucores": 25}


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(token_cluster: TokenCluster) -> AsyncIterator[TokenCluster]:
    """The real cluster with Nodes of both kinds in a namespace of its own, with no Pods after the test."""
    async with own_namespace(token_cluster):
        yield token_cluster
        await token_cluster.delete_all_pods()


def _on(node: str) -> Object:
    return {"nodeSelector": {"kubernetes.io/hostname": node}}


async def _runs(cluster: TokenCluster, pod: Object) -> Object:
    await cluster.create_by_resources(pod)
    return await cluster.pod_in_phase(pod["metadata"]["name"], "Running", WAIT_SECONDS)


async def test_same_pod_gets_the_same_share_on_both_kinds_of_nodes(cluster: TokenCluster) -> None:
    """Seen in its environment and by CUDA. On one kind it has a claim, on the other none."""
    for name, node in (("on-plugin", cluster.nodes[0].name), ("on-dra", cluster.node)):
        pod = await _runs(cluster, a_pod(name, command=("gpu-hold", "--mib", "1000"), spec=_on(node), **SHARE))
        assert ["3000m 25"] == cluster.shares_in(pod), name
        assert "allocated 1000 MiB of 3000 MiB visible" == await cluster.log_line("allocated", name)
        assert ("extendedResourceClaimStatus" in pod["status"]) is (name == "on-dra")


async def test_containers_and_devices_on_a_dra_node_have_their_own_shares(cluster: TokenCluster) -> None:
    """Two containers with different shares, two devices in one container, and a whole device."""
    spec = _on(cluster.node)
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


async def test_running_pod_keeps_its_share_when_kubelet_and_plugin_restart(cluster: TokenCluster) -> None:
    """Its containers run on, a later Pod starts, and nothing of ended Pods is left on the Node."""
    node = cluster.node
    before = await _runs(cluster, a_pod("before", command=("gpu-hold", "--mib", "100"), spec=_on(node), **SHARE))
    await cluster.kill(f"kubelet-{node}")
    await asyncio.to_thread(cluster.control_plane.node(node).start_kubelet)
    await eventually(cluster.offers_tokens, "tokens are offered again", WAIT_SECONDS)
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


async def _is_empty(cluster: TokenCluster, node: str, uids: set[str]) -> bool:
    return not [path for path in cluster.cdi_folder(node).iterdir() if any(uid in path.name for uid in uids)]


async def test_pod_without_room_on_either_kind_waits_and_is_told_of_both(cluster: TokenCluster) -> None:
    """And starts once a Pod has ended, on whichever Node has room then."""
    offered = 0
    for node in cluster.nodes:
        listed = (await cluster.api.get(f"/api/v1/nodes/{node.name}"))["metadata"]["annotations"]
        offered += listed["hami.io/node-nvidia-register"].count('"id"')
    for number in range(offered):
        await _runs(cluster, a_pod(f"whole-{number}", gpu=1))
    await cluster.create_by_resources(a_pod("waiting", gpu=1))

    async def is_refused() -> bool:
        conditions = (await cluster.pod("waiting"))["status"].get("conditions") or ()
        return any(found["type"] == "PodScheduled" and found["status"] == "False" for found in conditions)

    await eventually(is_refused, "the last Pod waits", WAIT_SECONDS)
    await cluster.delete_pod("whole-0")
    await cluster.pod_in_phase("waiting", "Running", WAIT_SECONDS)


async def test_init_container_with_a_share_of_its_own_goes_to_a_node_with_a_device_plugin(
    cluster: TokenCluster,
) -> None:
    """A claim would give both containers one request; on a Node of kind `dra` such a Pod waits with the reason."""
    init = [a_container("prepare", command=("gpu-hold", "--mib", "10", "--seconds", "0"), gpu=1, gpumem=500)]
    await cluster.create_by_resources(a_pod("init", init_containers=init, spec=_on(cluster.node), **SHARE))

    async def is_told() -> bool:
        conditions = (await cluster.pod("init"))["status"].get("conditions") or ()
        return any("one request for an init container" in (found.get("message") or "") for found in conditions)

    await eventually(is_told, "the reason is in the Pod's status", WAIT_SECONDS)
