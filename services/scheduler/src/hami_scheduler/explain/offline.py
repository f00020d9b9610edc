"""
Save the objects that decisions read in a snapshot, and make a cluster from them again.

Owns which objects, and which parts of them, are kept. Other objects in a file are ignored. Must never keep
environments, commands or images of containers. Neighbours: `cli` reads and writes the file, `cluster` takes the
objects.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hami_scheduler.explain.kube_filters import KubeNodes, KubeView
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.vendor import VendorRules
from hamicommon.errors import HamiError
from hamicommon.model import Object

DEVICE_CONFIG_KEY = "device-config.yaml"
"""Key in a ConfigMap, the same as in the chart's."""
SETTINGS_NAME = "hami-scheduler-settings"
"""The ConfigMap with our settings in a snapshot."""
NODE_POLICY_KEY = "node-scheduler-policy"
DEVICE_POLICY_KEY = "gpu-scheduler-policy"
SCHEDULER_NAME_KEY = "scheduler-name"
_NODE_SPEC = ("unschedulable", "taints")
_POD_SPEC = (
    *("nodeName", "schedulingGroup", "priority", "schedulerName", "schedulingGates", "nodeSelector", "affinity"),
    *("tolerations", "topologySpreadConstraints", "overhead", "resources", "resourceClaims", "hostNetwork"),
)
"""What is kept of a Pod's spec, beside containers and the kinds of volumes."""
_CONTAINER = ("name", "restartPolicy", "ports", "resources")
_RESIZED = ("name", "resources", "allocatedResources")
"""What is kept of the status of a container whose resources can change."""
_CONDITIONS = frozenset(("Ready", "PodScheduled", "PodResizePending"))
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


class SnapshotError(HamiError):
    """A file is no snapshot."""


@dataclass(slots=True)
class Saved:
    """The objects of a snapshot, by kind, and the settings that were in force."""

    nodes: list[Object] = field(default_factory=list)
    pods: list[Object] = field(default_factory=list)
    quotas: list[Object] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    """Data of the ConfigMap with a device config; empty without one."""

    def pod(self, namespace: str, name: str) -> Object | None:
        """Return one Pod, None if it does not exist."""
        wanted = (namespace, name)
        found = (pod for pod in self.pods if (_text(pod, "namespace") or "default", _text(pod, "name")) == wanted)
        return next(found, None)

    def add(self, document: Any, source: str) -> None:
        """
        Add a Kubernetes object, or a list of them; *source* is for messages.

        Raises:
            SnapshotError: it is neither.
        """
        kept = {"Node": self.nodes, "Pod": self.pods, "ResourceQuota": self.quotas}
        kind = document.get("kind") if isinstance(document, dict) else None
        if not kind or not isinstance(kind, str):
            raise SnapshotError(f"{source}: holds no Kubernetes object: it must have a kind, such as List or Node")
        if kind.endswith("List") and isinstance(document.get("items"), list):
            of = {"kind": kind.removesuffix("List")}
            for number, item in enumerate(document["items"]):
                self.add({**of, **item} if isinstance(item, dict) else item, f"{source}, item {number}")
            return
        if not isinstance(document.get("metadata"), dict) or not _text(document, "name"):
            raise SnapshotError(f"{source}: {kind} without metadata.name")
        data, is_ours = document.get("data") or {}, _text(document, "name") == SETTINGS_NAME
        if kind in kept:
            kept[kind].append(document)
        elif kind == "ConfigMap" and DEVICE_CONFIG_KEY in data and (is_ours or not self.settings):
            self.settings = data

    def cluster(self, vendors: tuple[VendorRules, ...]) -> Cluster:
        """Return what a scheduler that sees these objects knows."""
        cluster = Cluster(vendors, lambda _kind, _name, _problem: None)
        cluster.replace_nodes(self.nodes)
        cluster.replace_pods(self.pods, 0.0)
        cluster.quotas.replace(self.quotas)
        return cluster

    def kube_view(self) -> KubeView:
        """Return what a kube-scheduler that sees these objects knows."""
        nodes = KubeNodes(lambda _: True)
        for node in self.nodes:
            nodes.add_node(node)
        for pod in self.pods:
            nodes.add_pod(pod)
        return KubeView(nodes.nodes, "", self.settings.get(SCHEDULER_NAME_KEY, ""))


def pruned(found: Object) -> Object:
    """
    Return the parts of a Node, Pod or ResourceQuota that reports read.

    The result is safe to share: no environment, no command, no image, and of volumes only their kind.
    """
    metadata = found.get("metadata") or {}
    kept: Object = {
        "kind": found["kind"],
        "apiVersion": "v1",
        "metadata": {
            key: metadata[key]
            for key in ("name", "namespace", "uid", "labels", "annotations", "deletionTimestamp")
            if metadata.get(key)
        },
    }
    if "annotations" in kept["metadata"]:
        # kubectl keeps a copy of the whole object in one.
        kept["metadata"]["annotations"] = {
            key: text for key, text in kept["metadata"]["annotations"].items() if key != _LAST_APPLIED
        }
    spec, status = found.get("spec") or {}, found.get("status") or {}
    if found["kind"] == "ResourceQuota":
        kept["spec"] = _picked(spec, ("hard", "scopes", "scopeSelector"))
    elif found["kind"] == "Node":
        kept["spec"] = _picked(spec, _NODE_SPEC)
        kept["status"] = {**_picked(status, ("capacity", "allocatable")), **_conditions(status)}
    else:
        kept["spec"] = _picked(spec, _POD_SPEC)
        for part in ("initContainers", "containers"):
            if spec.get(part):
                kept["spec"][part] = [_picked(container, _CONTAINER) for container in spec[part]]
        if spec.get("volumes"):
            kept["spec"]["volumes"] = [{kind: {} for kind in one if kind != "name"} for one in spec["volumes"]]
        kept["status"] = {**_picked(status, ("phase", "startTime", "initContainerStatuses")), **_conditions(status)}
        resized = [_picked(one, _RESIZED) for one in status.get("containerStatuses") or () if one.get("resources")]
        if resized:
            kept["status"]["containerStatuses"] = resized
    return kept


def _conditions(status: Mapping[str, Any]) -> Object:
    found = [one for one in status.get("conditions") or () if one.get("type") in _CONDITIONS]
    return {"conditions": found} if found else {}


def _picked(found: Mapping[str, Any], names: Iterable[str]) -> Object:
    return {name: found[name] for name in names if found.get(name)}


def listed(items: Iterable[Object], settings: Mapping[str, str]) -> Object:
    """Return the snapshot of *items*, a v1 List, with *settings* in a ConfigMap."""
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": SETTINGS_NAME}, "data": dict(settings)}
    return {"apiVersion": "v1", "kind": "List", "items": [config_map, *items]}


def _text(found: Mapping[str, Any], key: str) -> str:
    return str((found.get("metadata") or {}).get(key) or "")
