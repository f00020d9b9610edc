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

from hami_scheduler.bind.node_lock import Lock
from hami_scheduler.values.grant import Grant
from hami_scheduler.values.vendor import VendorRules
from hamicommon.wire import keys
from hamicommon.wire.mig import encode_mig_allocations
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

    def binding(self, version: str) -> dict[str, Any]:
        """
        Return the v1 Binding. Its uid and resourceVersion, *version*, are preconditions.

        So any later write to the Pod, such as a fence, makes a Binding that is still on its way fail.
        """
        metadata = {"name": self.name, "namespace": self.namespace, "uid": self.uid, "annotations": self.annotations}
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**metadata, "resourceVersion": version} if version else metadata,
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
        return pod is not None and can_be_bound(pod) and self._is_of(pod.get("metadata") or {})

    def _is_of(self, metadata: Mapping[str, Any]) -> bool:
        return not self.uid or metadata.get("uid") == self.uid


def can_be_bound(pod: Mapping[str, Any]) -> bool:
    """Return whether a Binding could bind *pod* as it is. One that has ended, is gated or being deleted is refused."""
    metadata, spec, status = pod.get("metadata") or {}, pod.get("spec") or {}, pod.get("status") or {}
    is_closed = metadata.get("deletionTimestamp") or spec.get("schedulingGates")
    return not (spec.get("nodeName") or is_closed or status.get("phase") in {"Succeeded", "Failed"})


def plan_bind(
    grant: Grant, vendors: tuple[VendorRules, ...], unix_seconds: int, version: WireVersion = NEWEST
) -> BindPlan:
    """Return the bind of *grant*, readable by HAMi *version* and newer."""
    annotations = {
        keys.POD_NODE: grant.node,
        keys.POD_TIME: str(unix_seconds),
        keys.BIND_PHASE: keys.BIND_PHASE_ALLOCATING,
        keys.BIND_TIME: str(unix_seconds),
    }
    granting = [rules for rules in vendors if rules.key in grant.shares]
    for rules in granting:
        text = encode_pod_devices(grant.shares[rules.key], version)
        annotations[rules.vendor.allocated_key] = text
        if rules.vendor.to_allocate_key:
            annotations[rules.vendor.to_allocate_key] = text
    annotations.update(grant.annotations)
    if grant.mig:
        annotations[keys.MIG_ALLOCATIONS] = encode_mig_allocations(grant.mig)
    granted_keys = tuple(rules.vendor.allocated_key for rules in granting)
    return BindPlan(grant.uid, grant.namespace, grant.name, grant.node, annotations, granted_keys)


def locks_needed(grant: Grant, vendors: tuple[VendorRules, ...], *, finds_owners: bool) -> tuple[Lock, ...]:
    """
    Return the locks to keep while the Binding of *grant* is written, in the order to take them.

    *finds_owners* says whether the Node's device plugin needs no lock.
    """
    locking = [
        rules.vendor
        for rules in vendors
        if rules.key in grant.shares and rules.vendor.lock_key and not (finds_owners and rules.may_find_owners)
    ]
    return tuple(sorted({Lock(vendor.lock_key, vendor.lock_seconds) for vendor in locking}))


def node_label(node: str) -> str | None:
    """Return the value of the Pod label that names *node*, None if the name is no valid value."""
    return node if _LABEL_VALUE.fullmatch(node) else None
