"""
The Nodes, ResourceSlices, DeviceClasses and Pods of the stage.

Owns their form. Must never send anything. Neighbour: `bench.load.simulation` makes Nodes with an inventory.
"""

import json

from bench.load.simulation import COUNT, REPLICAS, a_node
from dra.table import OURS, Form, Kind
from hamicommon.model import Object
from harness.cluster import SCHEDULER_NAME

AMOUNTS = {"nvidia.com/gpumem": "3000", "nvidia.com/gpucores": "10"}
ASKED = "hami.io/share-request"
"""The annotation with the amounts of a rewritten Pod, by container. Only its place matters here."""
DEVICES = 4
"""The devices of each Node."""


def node_of(kind: Kind) -> Object:
    """Return the Node of *kind*, with the inventory of its agent."""
    found = a_node(kind.value, DEVICES)
    capacity, allocatable = dict(found["status"]["capacity"]), dict(found["status"]["allocatable"])
    if kind is Kind.DRA:
        del capacity[COUNT], allocatable[COUNT]
    elif kind is Kind.STOPPED:
        # A kubelet counts the replicas of an ended plugin as unhealthy for five minutes.
        allocatable[COUNT] = "0"
    elif kind is Kind.MOVED:
        # Later it lists the resource with 0, for ever.
        # Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/nodestatus/setters.go#L274-L285
        capacity[COUNT] = allocatable[COUNT] = "0"
    found["status"] = {"capacity": capacity, "allocatable": allocatable}
    return found


def slice_of(node: str, devices: int = DEVICES) -> Object:
    """Return the ResourceSlice of *node*: a token for each device and replica, without amounts."""
    tokens = [{"name": f"token-{device}-{replica}"} for device in range(devices) for replica in range(REPLICAS)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-tokens"},
        "spec": {"driver": OURS, "nodeName": node, "pool": pool, "devices": tokens},
    }


def class_of(name: str) -> Object:
    """Return the DeviceClass *name*, which maps the count to the devices of the driver of the same name."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{name}"'}}], "extendedResourceName": COUNT},
    }


def pod_of(name: str, form: Form, node: str = "") -> Object:
    """Return a Pod with one share in *form*, for any Node or only *node*."""
    limits = {COUNT: "1", **(AMOUNTS if form is Form.SHARE else {})}
    metadata: Object = {"name": name}
    spec: Object = {
        "nodeSelector": {"kubernetes.io/hostname": node} if node else {},
        "containers": [{"name": "main", "image": "localhost/none", "resources": {"limits": limits}}],
        "automountServiceAccountToken": False,
    }
    if form is Form.REWRITTEN:
        # Today's webhook would add cores to such a Pod.
        metadata |= {"annotations": {ASKED: json.dumps({"main": AMOUNTS})}, "labels": {"hami.io/webhook": "ignore"}}
        spec["schedulerName"] = SCHEDULER_NAME
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
