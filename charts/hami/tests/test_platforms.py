"""
The values for each platform fit what its vendor says of it, and docs/platforms.md installs with them.
"""

from pathlib import Path, PurePosixPath

import pytest
import yaml

from harness.documents.commands import Document

from .chart import (
    CHART,
    PLATFORMS,
    Json,
    RefusedError,
    given,
    needs_helm,
    objects,
    one,
    pod_spec,
    rendering,
    text,
)

pytestmark = needs_helm

PAGE = CHART.parents[1] / "docs/platforms.md"
NODE_PARTS = ("device-plugin", "monitor")
STATEFUL = ("/var", "/run", "/sys/fs/cgroup")
WRITABLE = {"gke": ("/home", *STATEFUL), "talos": STATEFUL}
"""
The folders of a Node that its containers can write to, by platform.

Source: https://cloud.google.com/container-optimized-os/docs/concepts/disks-and-filesystem,
https://docs.siderolabs.com/talos/v1.13/learn-more/architecture
"""
EXECUTABLE = {"gke": ("/home/kubernetes/bin", "/var/lib/google"), "talos": ("/var",)}
"""Those of them that are not mounted noexec. A process can map a library from nowhere else."""
GPU_TAINT = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def values_of(platform: str) -> tuple[str, ...]:
    """Return the arguments that give a platform's values."""
    return ("--values", str(PLATFORMS[platform]))


def node_specs(platform: str) -> list[Json]:
    """Return the specs of the Pods of the device plugin and the monitor on *platform*."""
    return [pod_spec(one("DaemonSet", f"hami-{part}", *values_of(platform))) for part in NODE_PARTS]


def written(spec: Json) -> set[str]:
    """Return the folders of the Node that the containers of *spec* may write to."""
    mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
    names = {mount["name"] for mount in mounts if not mount.get("readOnly")}
    return {each["hostPath"]["path"] for each in spec["volumes"] if "hostPath" in each and each["name"] in names}


def is_below(path: str, folders: tuple[str, ...]) -> bool:
    """Return whether *path* is in one of *folders*."""
    return any(PurePosixPath(path).is_relative_to(folder) for folder in folders)


@pytest.mark.parametrize("platform", WRITABLE)
def test_paths_are_writable_on_a_read_only_root(platform: str) -> None:
    """No folder that is written to is on the root, as the default /usr/local is."""
    paths = set().union(*map(written, node_specs(platform)))

    assert [] == [path for path in paths if not is_below(path, WRITABLE[platform])]
    assert any(path.endswith("/vgpu") for path in paths)
    defaults = [pod_spec(one("DaemonSet", f"hami-{part}")) for part in NODE_PARTS]
    assert any(not is_below(path, WRITABLE[platform]) for spec in defaults for path in written(spec))


@pytest.mark.parametrize("platform", EXECUTABLE)
def test_library_is_where_programs_may_run(platform: str) -> None:
    """Containers map libvgpu.so from there, and the container runtime runs the hooks there."""
    library = {each["name"]: each for spec in node_specs(platform) for each in spec["volumes"]}["library"]

    assert is_below(library["hostPath"]["path"], EXECUTABLE[platform])


def test_pods_of_gke_tolerate_its_taint_and_see_the_devices() -> None:
    """GKE adds the toleration only to Pods that ask for a device, and has no runtime that adds device files."""
    for spec in node_specs("gke"):
        assert GPU_TAINT in spec["tolerations"]
        assert "runtimeClassName" not in spec
        assert {"path": "/home/kubernetes/bin", "type": "DirectoryOrCreate"} in [
            each.get("hostPath") for each in spec["volumes"]
        ]
        assert all(each["securityContext"]["privileged"] for each in spec["containers"])


def test_quota_of_gke_names_every_critical_priority_of_ours() -> None:
    """A Pod whose priority class no quota of the namespace names is not created."""
    made = objects(*values_of("gke"))
    (quota,) = [each for each in made if each["kind"] == "ResourceQuota"]
    classes = {pod_spec(each).get("priorityClassName") for each in made if each["kind"] in ("Deployment", "DaemonSet")}
    (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]

    assert ("PriorityClass", "In", classes) == (scope["scopeName"], scope["operator"], set(scope["values"]))
    assert {"pods": "1000"} == quota["spec"]["hard"]
    assert "hami" == quota["metadata"]["namespace"]


def test_quota_names_only_classes_that_need_one() -> None:
    """Without a critical Pod there is none, and without the value neither."""
    names = ("webhook", "scheduler", "devicePlugin", "monitor")
    own: Json = {name: {"priorityClassName": "mine"} for name in names} | {"priorityQuota": {"create": True}}

    assert "ResourceQuota" not in {each["kind"] for each in objects()}
    assert "ResourceQuota" not in {each["kind"] for each in objects(*given(own))}
    (quota,) = [
        each
        for each in objects(*given(own | {"monitor": {"priorityClassName": "system-node-critical"}}))
        if each["kind"] == "ResourceQuota"
    ]
    assert ["system-node-critical"] == quota["spec"]["scopeSelector"]["matchExpressions"][0]["values"]


def test_quota_in_kube_system_is_refused() -> None:
    """It would limit the platform's own Pods."""
    with pytest.raises(RefusedError, match=r"priorityQuota\.create=true would count all Pods of kube-system"):
        text(*given({"priorityQuota": {"create": True}, "namespaceOverride": "kube-system"}))


@pytest.mark.parametrize("version", ["1.36.5", "1.37.1"])
def test_aks_gets_the_kube_scheduler_of_its_version(version: str) -> None:
    """
    The default and the long-term version of AKS.

    Source: https://github.com/Azure/AKS/releases/tag/2026-10-25
    """
    scheduler = one("Deployment", "hami-scheduler", *values_of("aks"), kubernetes=version)
    images = {each["name"]: each["image"] for each in pod_spec(scheduler)["containers"]}

    assert images["kube-scheduler"].endswith(f":v{version}")


def test_aks_writes_the_webhooks_namespace_selector() -> None:
    """Otherwise Helm and AKS both own the field. The Pods tolerate the taint of AKS's documentation."""
    (webhook,) = one("MutatingWebhookConfiguration", "hami-webhook", *values_of("aks"))["webhooks"]

    assert "namespaceSelector" not in webhook
    assert webhook["objectSelector"]["matchExpressions"]
    for spec in node_specs("aks"):
        assert {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"} in spec["tolerations"]


def test_talos_has_the_runtime_class_of_its_extension() -> None:
    """Plugin, monitor and Pods with a share use it."""
    assert "nvidia" == one("RuntimeClass", "nvidia", *values_of("talos"))["handler"]
    assert {"nvidia"} == {spec["runtimeClassName"] for spec in node_specs("talos")}


def test_operators_runtime_and_driver_are_used() -> None:
    """Its RuntimeClass is not the default, and is not created twice."""
    assert {"nvidia"} == {spec["runtimeClassName"] for spec in node_specs("gpu-operator")}
    assert "RuntimeClass" not in {each["kind"] for each in objects(*values_of("gpu-operator"))}
    for spec in node_specs("gpu-operator"):
        assert "/run/nvidia" in {each.get("hostPath", {}).get("path") for each in spec["volumes"]}


def test_plugin_leaves_the_nodes_of_a_dra_driver_alone() -> None:
    """Two that allocate one device know nothing of each other; without a toolkit there is no RuntimeClass."""
    for spec in node_specs("gpu-cluster"):
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        (term,) = required["nodeSelectorTerms"]
        assert {"key": "nvidia.com/gpu.deploy.dra-driver", "operator": "NotIn", "values": ["true"]} in term[
            "matchExpressions"
        ]
        assert "runtimeClassName" not in spec
        assert all(each["securityContext"]["privileged"] for each in spec["containers"])


@pytest.mark.parametrize("platform", PLATFORMS)
def test_page_installs_with_the_values_of_the_platform(platform: str, tmp_path: Path) -> None:
    """The command as it is on the page renders every part."""
    environment = {"PATH": rendering(tmp_path), "REGISTRY": "registry.example"}

    output = Document(PAGE).run(platform, environment, folder=CHART.parents[1])

    kinds = [each["kind"] for each in yaml.safe_load_all(output) if each]
    assert (2, 2) == (kinds.count("Deployment"), kinds.count("DaemonSet"))


def test_page_labels_the_namespace_for_talos() -> None:
    """Talos enforces the Pod Security Standard `baseline`, which forbids folders of the host."""
    block = Document(PAGE).blocks["talos"].text

    assert "kubectl label namespace hami pod-security.kubernetes.io/enforce=privileged" in block
    assert all(written(spec) for spec in node_specs("talos"))
