"""
What a Pod was granted on this Node, which containers run without it, and what to write on the Pod once they have it.

A kubelet that does not know the resource admits a Pod all the same, and starts its containers without a call to the
plugin: before the first registration on a new Node, after it lost its checkpoint, under another name of the resource.
Neighbours: `kube` delivers Pods as `hamicommon.pod` reads them, `identity` and `lock` decide with their shares,
`calls` and `node_loop` mark them.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/lifecycle/predicate.go
(`removeMissingExtendedResources`)
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from hami_device_plugin.decide.allocate.owner import Allocated
from hami_device_plugin.decide.inventory import is_instance
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares
from hamicommon.pod.containers import ContainerKind
from hamicommon.pod.reading import Container, Pod
from hamicommon.vendors.description import Vendor
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.pod_devices import encode_pod_devices

LABEL_BYTES_MAX = 63


Sharing = tuple[Pod, Container, ContainerShares]
"""A container and its shares."""


class AllocationError(HamiError):
    """A Pod carries no readable allocation for this Node."""


def granted_shares(pod: Pod, node: str, vendor: Vendor) -> dict[str, ContainerShares]:
    """
    Return the shares of each container of *pod* on *node*.

    Raises:
        AllocationError: the Pod carries no readable allocation for this Node.
    """
    if vendor.allocated_key not in pod.annotations:
        raise AllocationError(f"Pod {pod} has no annotation {vendor.allocated_key}: was it bound by HAMi's scheduler?")
    chosen = pod.annotations.get(keys.POD_NODE, node)
    if chosen != node:
        raise AllocationError(f"Pod {pod}: annotation {keys.POD_NODE} is {chosen!r}, but it runs on Node {node!r}")
    try:
        granted = pod.granted(vendor.allocated_key, vendor.key)
    except DecodeError as error:
        raise AllocationError(f"Pod {pod}: annotation {error}") from error
    return {container.name: shares for container, shares in zip(pod.containers, granted.shares, strict=True)}


def sharing_containers(pods: Iterable[Pod], node: str, vendor: Vendor) -> Iterator[Sharing]:
    """Yield each container of *pods* that was granted shares on *node*, and no MIG instances."""
    for pod in pods:
        try:
            shares = granted_shares(pod, node, vendor)
        except AllocationError:
            continue
        for container in pod.containers:
            granted = shares.get(container.name, ())
            if granted and not any(is_instance(share.uuid) for share in granted):
                yield pod, container, granted


def check_unprivileged(pod: Pod, container: str) -> None:
    """
    Check that *container* of *pod*, which has shares, is not privileged.

    Raises:
        AllocationError: it is, so that it has every device file of the Node.
    """
    if any(found.is_privileged for found in pod.containers if found.name == container):
        raise AllocationError(
            f"Pod {pod}, container {container} is privileged: it would see every device of the Node, so it gets no "
            "share; take away securityContext.privileged, or its request for devices"
        )


def unserved(
    pods: Mapping[str, Pod], entries: Iterable[Allocated], prepared: Collection[str], node: str, vendor: Vendor
) -> dict[str, str]:
    """
    Return `<Pod UID>.<container>` and a name for people of each container of *pods* that started without its devices.

    The kubelet recorded none for it in *entries*, and its Pod is not *prepared* by this plugin. A container that has
    devices has one of the two, also after the kubelet has lost its record.
    """
    recorded = {entry.pod_uid for entry in entries}
    found: dict[str, str] = {}
    for uid, pod in pods.items():
        if uid in recorded or uid in prepared or pod.phase != "Running":
            continue
        try:
            shares = granted_shares(pod, node, vendor)
        except AllocationError:
            continue
        found |= {
            f"{uid}.{container.name}": f"Pod {pod}, container {container.name}"
            for container in pod.containers
            if container.kind is not ContainerKind.INIT
            and container.started_at is not None
            and shares.get(container.name)
        }
    return found


def confirmation(pod: Pod, node: str, vendor: Vendor) -> dict[str, Any] | None:
    """
    Return the merge patch that marks *pod* as allocated; None if it is marked already, or has no shares.

    Schedulers and HAMi's tools wait for it. It names the UID, so it fails on another Pod of the same name.
    """
    if not {vendor.allocated_key, vendor.to_allocate_key} & pod.annotations.keys():
        return None
    annotations = {
        keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS,
        vendor.to_allocate_key: encode_pod_devices(((),) * len(pod.containers)),
    }
    labels = {keys.POD_NODE: node} if len(node.encode()) <= LABEL_BYTES_MAX else {}
    is_consumed = not pod.annotations.get(vendor.to_allocate_key, "").strip(";")
    has_labels = labels.items() <= pod.labels.items()
    if pod.annotations.get(keys.BIND_PHASE) == keys.BIND_PHASE_SUCCESS and is_consumed and has_labels:
        return None
    return {"metadata": {"uid": pod.uid, "annotations": annotations, "labels": labels}}
