"""
Plan what a bind writes: one Binding with everything the Node's device plugin must know.

Owns the annotations of a placed Pod. kube-apiserver merges them into the Pod in the transaction that sets
`spec.nodeName`, so a Pod is never half bound. Neighbours: `grant` holds the shares, `bind_writer` writes the plan.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/registry/core/pod/storage/storage.go
(`setPodNodeAndMetadata`)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hami_scheduler.decide.node_lock import Lock
from hami_scheduler.decide.place_pod import Placement
from hami_scheduler.values.grant import Grant, make_grant
from hami_scheduler.values.inventory import NodeInventory
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import Allotment, VendorFrame
from hamicommon.wire import keys
from hamicommon.wire.mig.allocations import encode_mig_allocations
from hamicommon.wire.pod_devices import encode_pod_devices
from hamicommon.wire.version import NEWEST, WireVersion

_LABEL_VALUE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
"""Source: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set"""


@dataclass(frozen=True, slots=True)
class BindPlan:
    """One bind, ready to be written."""

    uid: str
    namespace: str
    name: str
    node: str
    annotations: dict[str, str]
    granted_keys: tuple[str, ...] = ()
    """The annotations that say what was granted."""

    @property
    def path(self) -> str:
        """The path that the Binding is posted to."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}/binding"

    @property
    def binding(self) -> dict[str, Any]:
        """The v1 Binding; its uid is a precondition."""
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.uid,
                "annotations": self.annotations,
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": self.node},
        }

    def is_done_by(self, pod: Mapping[str, Any] | None) -> bool:
        """Return whether *pod*, as read back, is bound by this plan, or by an earlier one that granted the same."""
        if pod is None or (pod.get("spec") or {}).get("nodeName") != self.node:
            return False
        metadata = pod.get("metadata") or {}
        found = metadata.get("annotations") or {}
        # The device plugin rewrites what it consumes, but never what was granted.
        granted = {key: self.annotations[key] for key in self.granted_keys}
        return self._is_of(metadata) and all(found.get(key) == text for key, text in granted.items())

    def is_possible_for(self, pod: Mapping[str, Any] | None) -> bool:
        """Return whether *pod*, as read back, can still be bound by this plan."""
        if pod is None or (pod.get("spec") or {}).get("nodeName"):
            return False
        return self._is_of(pod.get("metadata") or {})

    def _is_of(self, metadata: Mapping[str, Any]) -> bool:
        return not self.uid or metadata.get("uid") == self.uid


def promise(request: PodRequest, inventory: NodeInventory, placement: Placement, unix_nanoseconds: int) -> Grant:
    """Return what *placement* grants the Pod of *request* on the Node of *inventory*."""
    devices = {device.id: device for device in inventory.devices}
    annotations: dict[str, str] = {}
    for key, frame in request.vendors.items():
        shares = placement.shares[key]
        if frame.annotate is None or not any(shares):
            continue
        asked = [next((r for r in container.requests if r.vendor == key), None) for container in request.containers]
        names = [container.name for container in request.containers]
        containers = tuple(zip(names, asked, shares, strict=True))
        allotment = Allotment(inventory.name, containers, devices, request.rules[key].notes, unix_nanoseconds)
        annotations.update(frame.annotate(allotment))
    return make_grant(
        (request.uid, request.namespace, request.name),
        inventory.name,
        request.kinds,
        placement.shares,
        mig=placement.mig,
        notes={key: rules.notes for key, rules in request.rules.items()},
        is_settled=False,
        annotations=annotations,
    )


def plan_bind(
    grant: Grant, vendors: tuple[VendorFrame, ...], unix_seconds: int, version: WireVersion = NEWEST
) -> BindPlan:
    """Return the bind of *grant*, readable by HAMi *version* and newer."""
    annotations = {
        keys.POD_NODE: grant.node,
        keys.POD_TIME: str(unix_seconds),
        keys.BIND_PHASE: keys.BIND_PHASE_ALLOCATING,
        keys.BIND_TIME: str(unix_seconds),
    }
    granting = [frame for frame in vendors if frame.key in grant.shares]
    for frame in granting:
        text = encode_pod_devices(grant.shares[frame.key], version)
        annotations[frame.vendor.allocated_key] = text
        if frame.vendor.to_allocate_key:
            annotations[frame.vendor.to_allocate_key] = text
    annotations.update(grant.annotations)
    if grant.mig:
        annotations[keys.MIG_ALLOCATIONS] = encode_mig_allocations(grant.mig)
    granted_keys = tuple(frame.vendor.allocated_key for frame in granting)
    return BindPlan(grant.uid, grant.namespace, grant.name, grant.node, annotations, granted_keys)


def locks_needed(grant: Grant, vendors: tuple[VendorFrame, ...], *, finds_owners: bool) -> tuple[Lock, ...]:
    """
    Return the locks to hold while the Binding of *grant* is written, in the order to take them.

    *finds_owners* says whether the Node's device plugin needs no lock.
    """
    frames = [f for f in vendors if f.key in grant.shares and not (finds_owners and f.may_find_owners)]
    return tuple(sorted({Lock(f.vendor.lock_key, f.vendor.lock_seconds) for f in frames if f.vendor.lock_key}))


def plain_bind(uid: str, namespace: str, name: str, node: str) -> BindPlan:
    """Return the bind of a Pod that asks for no device."""
    return BindPlan(uid, namespace, name, node, {})


def node_label(node: str) -> str | None:
    """Return the value of the Pod label that names *node*, None if the name is no valid value."""
    return node if _LABEL_VALUE.fullmatch(node) else None
