"""
A share by a ResourceClaim is as exact as one by HAMi's resources, on a Node of kind `dra`.

kube-scheduler allocates the claim, and the real kubelet has the plugin prepare it.
"""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from hamicommon.dra.names import DEVICE_TYPE, DRIVER
from hamicommon.model import Object
from harness.clusters.real import RealCluster
from harness.clusters.release import HAMI
from harness.isolation import own_namespace
from harness.manifests import a_pod
from testbed.waiting import eventually

pytestmark = [pytest.mark.real_only, pytest.mark.timeout(400)]

API = "/apis/resource.k8s.io/v1"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NAME = "e2e-dra"
PLUGIN = f"/api/v1/namespaces/{HAMI}/pods/{NAME}"
FOLDERS = {name: f"/var/lib/kubelet/{name}" for name in ("plugins", "plugins_registry")}
RULES = [
    {"apiGroups": ["resource.k8s.io"], "resources": ["resourceclaims"], "verbs": ["get"]},
    {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceslices"],
        "verbs": ["get", "list", "watch", "create", "update", "delete"],
    },
]
CLASS = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {
        "selectors": [
            {
                "cel": {
                    "expression": f"device.driver == '{DRIVER}' && "
                    f"device.attributes['{DRIVER}'].type == '{DEVICE_TYPE}' && "
                    "device.attributes['gpu.nvidia.com'].productName != ''"
                }
            }
        ]
    },
}
SINCE = (1, 36)
WAIT_SECONDS = 90


@pytest_asyncio.fixture(loop_scope="session")
async def cluster(real_cluster: RealCluster) -> AsyncIterator[RealCluster]:
    """The real cluster, whose last Node is of kind `dra` during the test: its only plugin serves it so."""
    if tuple(map(int, real_cluster.control_plane.kubernetes.split("."))) < SINCE:
        pytest.skip("devices are shared by claims since Kubernetes 1.36")
    node = real_cluster.nodes[-1].name
    await real_cluster.deploy(values={"devicePlugin.ownNodeOnly": False})
    async with own_namespace(real_cluster):
        try:
            await _grant_rights(real_cluster)
            await _label(real_cluster, node, None)
            await real_cluster.api.create(PLUGIN.rpartition("/")[0], await _plugin(real_cluster, node))
            await real_cluster.api.create(f"{API}/deviceclasses", CLASS)
            await eventually(lambda: _slices(real_cluster), "the Node's ResourceSlice exists", WAIT_SECONDS)
            yield real_cluster
        finally:
            await real_cluster.delete_all_pods()
            for path in (PLUGIN, f"{API}/deviceclasses/{DRIVER}"):
                await real_cluster.api.delete_if_exists(path, 0)
            for found in await _slices(real_cluster):
                await real_cluster.api.delete_if_exists(f"{API}/resourceslices/{found['metadata']['name']}", 0)
            for kind in ("clusterroles", "clusterrolebindings"):
                await real_cluster.api.delete_if_exists(f"{RBAC}/{kind}/{NAME}", 0)
            await _label(real_cluster, node, "on")
            await real_cluster.node_ready(node, WAIT_SECONDS)


async def _grant_rights(cluster: RealCluster) -> None:
    metadata = {"name": NAME}
    await cluster.api.create(f"{RBAC}/clusterroles", {"kind": "ClusterRole", "metadata": metadata, "rules": RULES})
    account = {"kind": "ServiceAccount", "namespace": HAMI, "name": (await _daemon_set(cluster))["serviceAccountName"]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME}
    binding = {"kind": "ClusterRoleBinding", "metadata": metadata, "roleRef": role, "subjects": [account]}
    await cluster.api.create(f"{RBAC}/clusterrolebindings", binding)


async def _label(cluster: RealCluster, node: str, value: str | None) -> None:
    """Set the label by which the DaemonSets of the release find Nodes, or remove it and wait until they have left."""
    await cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"gpu": value}}})

    async def left() -> bool:
        pods, _ = await cluster.api.list(f"/api/v1/namespaces/{HAMI}/pods", fieldSelector=f"spec.nodeName={node}")
        return not any("device-plugin" in pod["metadata"]["name"] for pod in pods)

    if value is None:
        await eventually(left, f"the device plugin has left {node}", WAIT_SECONDS)


async def _daemon_set(cluster: RealCluster) -> Object:
    """Return the spec of the Pods of the plugin's DaemonSet."""
    found, _ = await cluster.api.list(f"/apis/apps/v1/namespaces/{HAMI}/daemonsets")
    [spec] = [one["spec"]["template"]["spec"] for one in found if "device-plugin" in one["metadata"]["name"]]
    return dict(spec)


async def _plugin(cluster: RealCluster, node: str) -> Object:
    """Return the Pod of a plugin that serves *node* as one of kind `dra`, otherwise as the release has it."""
    spec = await _daemon_set(cluster)
    [container] = spec["containers"]
    mounts = [{"name": name.replace("_", "-"), "mountPath": path} for name, path in FOLDERS.items()]
    container["args"] += ["--node-kind=dra"]
    container["env"] += [{"name": "POD_UID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}}]
    container["volumeMounts"] += mounts
    volumes = [{"name": name.replace("_", "-"), "hostPath": {"path": path}} for name, path in FOLDERS.items()]
    changes = {"nodeName": node, "nodeSelector": {}, "volumes": spec["volumes"] + volumes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec | changes}


async def _slices(cluster: RealCluster) -> list[Object]:
    found, _ = await cluster.api.list(f"{API}/resourceslices", fieldSelector=f"spec.driver={DRIVER}")
    return list(found)


async def _claiming_pod(cluster: RealCluster, name: str, memory: str, cores: str, *command: str) -> Object:
    """Create a Pod with a share by a template's claim, and return it once it runs."""
    request = {"deviceClassName": DRIVER, "capacity": {"requests": {"memory": memory, "cores": cores}}}
    template = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    await cluster.api.create(
        f"{API}/namespaces/{cluster.namespace}/resourceclaimtemplates",
        {"kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": template}},
    )
    spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}]}
    pod = a_pod(name, command=command or ("gpu-hold", "--mib", "100"), spec=spec)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
    await cluster.create(pod)
    return await cluster.pod_in_phase(name, "Running", WAIT_SECONDS)


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
    [before] = await _slices(cluster)

    async def is_new() -> bool:
        return [found["metadata"]["uid"] for found in await _slices(cluster)] not in ([], [before["metadata"]["uid"]])

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
