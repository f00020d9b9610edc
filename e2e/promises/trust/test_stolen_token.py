"""
An attacker who has taken over one Node, and with it the device plugin's token there, changes no other Node.

RBAC lets the plugin patch every Node and every Pod. A policy of the chart keeps each plugin to its own Node, which the
API server reads from the token. The embedded API server has no such policies.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from hamicommon.dra.names import DRIVER
from hamicommon.model import Object
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.manifests import SLEEP, a_container, a_pod
from minicluster.client import ApiError, Client
from testbed.driver.hardware import TWO_NODES

pytestmark = pytest.mark.real_only

HERE, THERE = (node.name for node in TWO_NODES)
NODES = "/api/v1/nodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
INVENTORY = "hami.io/node-nvidia-register"


@pytest_asyncio.fixture(loop_scope="session")
async def plugin(cluster: RealCluster, tmp_path: Path) -> AsyncIterator[Client]:
    """A client with a token like that of the device plugin's Pod on the first Node."""
    async with stolen(cluster, tmp_path) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="session")
async def driver(cluster: RealCluster, tmp_path: Path) -> AsyncIterator[Client]:
    """The same where the chart also shares devices by ResourceClaims."""
    if tuple(map(int, cluster.control_plane.kubernetes.split("."))) < (1, 36):
        pytest.skip("devices are shared by claims since Kubernetes 1.36")
    await cluster.deploy(values={"dra.enabled": True})
    async with stolen(cluster, tmp_path) as client:
        yield client


@asynccontextmanager
async def stolen(cluster: RealCluster, folder: Path) -> AsyncIterator[Client]:
    """Yield a client with such a token; its configuration is in *folder*."""
    pods, _ = await cluster.api.list(
        f"/api/v1/namespaces/{HAMI}/pods",
        labelSelector="app.kubernetes.io/component=hami-device-plugin",
        fieldSelector=f"spec.nodeName={HERE}",
    )
    pod, account = pods[0]["metadata"], pods[0]["spec"]["serviceAccountName"]
    bound_to = {"apiVersion": "v1", "kind": "Pod", "name": pod["name"], "uid": pod["uid"]}
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"boundObjectRef": bound_to, "audiences": []},
    }
    made = await cluster.api.create(f"/api/v1/namespaces/{HAMI}/serviceaccounts/{account}/token", request)
    config = yaml.safe_load(cluster.control_plane.kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {"token": made["status"]["token"]}} for each in config["users"]]
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    async with Client.from_kubeconfig(file, "stolen") as client:
        yield client


def annotated(key: str, text: str | None) -> Object:
    """Return a merge patch that sets or removes an annotation."""
    return {"metadata": {"annotations": {key: text}}}


async def refusal(client: Client, path: str, patch: Object) -> str:
    """Return why the API server refuses the patch."""
    with pytest.raises(ApiError) as error:
        await client.patch(path, patch)
    assert 403 == error.value.status, error.value
    return error.value.message


async def running_on(cluster: RealCluster, name: str, node: str) -> str:
    """Start a Pod without a share on *node*, and return its path."""
    pod = a_pod(name, [{**a_container(command=SLEEP), "resources": {}}], spec={"nodeName": node})
    await cluster.create(pod)
    await cluster.pod_in_phase(name, "Running")
    return f"/api/v1/namespaces/{cluster.namespace}/pods/{name}"


async def test_other_nodes_cannot_be_changed(plugin: Client) -> None:
    """Not even the annotation that the plugin of that Node writes, such as its inventory or its lock."""
    for key in (INVENTORY, "hami.io/mutex.lock", "hami.io/device-faults"):
        message = await refusal(plugin, f"{NODES}/{THERE}", annotated(key, "[]"))
        assert f"the device plugin of Node {HERE} may change its own Node only" in message


async def test_own_node_is_changed_only_where_the_plugin_writes(plugin: Client) -> None:
    """No taint, no label, no annotation of others."""
    own = f"{NODES}/{HERE}"

    assert "annotations and labels only" in await refusal(plugin, own, {"spec": {"unschedulable": True}})
    assert "only these labels of nodes: none" in await refusal(plugin, own, {"metadata": {"labels": {"gpu": "off"}}})
    assert "only these annotations of nodes" in await refusal(plugin, own, annotated("hami.io/device-cordon", "all"))
    before = (await plugin.get(own))["metadata"]["annotations"]
    await plugin.patch(own, annotated("hami.io/mig-change", "a test"))
    await plugin.patch(own, annotated("hami.io/mig-change", before.get("hami.io/mig-change")))


async def test_pods_of_other_nodes_cannot_be_changed(cluster: RealCluster, plugin: Client) -> None:
    """A Pod there cannot be marked as allocated, or given another share."""
    path = await running_on(cluster, "there", THERE)

    message = await refusal(plugin, path, annotated("hami.io/bind-phase", "success"))

    assert f"the device plugin of Node {HERE} may change Pods of its own Node only" in message


async def test_pods_of_the_own_node_are_changed_only_where_the_plugin_writes(
    cluster: RealCluster, plugin: Client
) -> None:
    """Its mark can be set; another image, label or grant cannot."""
    path = await running_on(cluster, "here", HERE)
    container = {"name": "main", "image": "another"}
    grant = annotated("hami.io/vgpu-devices-allocated", f"{TWO_NODES[0].gpus[0].uuid},NVIDIA,1000,0:;")

    await plugin.patch(path, annotated("hami.io/bind-phase", "success"))
    with pytest.raises(ApiError, match="annotations and labels only"):
        await plugin.patch(path, {"spec": {"containers": [container]}}, "strategic")
    assert "only these labels of pods" in await refusal(plugin, path, {"metadata": {"labels": {"team": "one"}}})
    assert "only" in await refusal(plugin, path, grant)


async def test_token_that_names_no_node_changes_nothing(cluster: RealCluster) -> None:
    """A token that was made for the account by hand, not for a Pod of it."""
    user = f"system:serviceaccount:{HAMI}:hami-device-plugin"
    run = cluster.control_plane.kubectl
    patch = '{"metadata": {"annotations": {"hami.io/mig-change": "a test"}}}'

    with pytest.raises(Exception, match="the token of the device plugin names no Node"):
        run("patch", "node", HERE, f"--as={user}", "--type=merge", f"--patch={patch}")


def a_slice(name: str, node: str, pool: str = HERE, driver: str = DRIVER) -> Object:
    """Return a ResourceSlice without devices."""
    spec = {
        "driver": driver,
        "nodeName": node,
        "pool": {"name": pool, "generation": 99, "resourceSliceCount": 1},
        "devices": [],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


async def test_slices_of_other_nodes_pools_and_drivers_cannot_be_written(cluster: RealCluster, driver: Client) -> None:
    """A newer generation of a pool would hide the devices of another Node from kube-scheduler."""
    await cluster.api.create(SLICES, a_slice("there", THERE, THERE))
    try:
        for item in (a_slice("x", THERE), a_slice("x", HERE, THERE), a_slice("x", HERE, HERE, "gpu.example.com")):
            with pytest.raises(ApiError, match=f"plugin of Node {HERE} may write ResourceSlices of this Node"):
                await driver.create(SLICES, item)
        with pytest.raises(ApiError, match="of this Node only"):
            await driver.delete(f"{SLICES}/there", 0)

        made = await driver.create(SLICES, a_slice("here", HERE))
        await driver.delete(f"{SLICES}/{made['metadata']['name']}", 0)
    finally:
        for name in ("there", "here"):
            await cluster.api.delete_if_exists(f"{SLICES}/{name}", 0)


@pytest.mark.parametrize("name", ["hami-own-nodes", "hami-own-pods", "hami-own-resourceslices"])
async def test_api_server_finds_nothing_odd_in_the_policies(cluster: RealCluster, driver: Client, name: str) -> None:
    """The API server checks the expressions against the types of the objects."""
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
    status = (await cluster.api.get(path)).get("status", {})

    assert [] == status["typeChecking"].get("expressionWarnings", [])
