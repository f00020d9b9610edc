"""
What a bind writes: one Binding with everything the Node's device plugin must know.

Owns the annotations of a placed Pod. kube-apiserver merges them into the Pod in the transaction that sets
`spec.nodeName`, so a Pod is never half bound. Neighbours: `grant` holds the shares, `extender` carries the plan out.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/registry/core/pod/storage/storage.go
(`setPodNodeAndMetadata`)
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hami_scheduler.grant import Grant
from hami_scheduler.vendor import VendorFrame
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

    @property
    def path(self) -> str:
        """Where the Binding is posted."""
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
        # The device plugin rewrites what it consumes; what was granted nobody rewrites.
        granted = {key: text for key, text in self.annotations.items() if key.endswith("-allocated")}
        return self._is_of(metadata) and all(found.get(key) == text for key, text in granted.items())

    def is_possible_for(self, pod: Mapping[str, Any] | None) -> bool:
        """Return whether *pod*, as read back, can still be bound by this plan."""
        if pod is None or (pod.get("spec") or {}).get("nodeName"):
            return False
        return self._is_of(pod.get("metadata") or {})

    def _is_of(self, metadata: Mapping[str, Any]) -> bool:
        return not self.uid or metadata.get("uid") == self.uid


def plan_bind(
    grant: Grant, vendors: tuple[VendorFrame, ...], unix_seconds: int, version: WireVersion = NEWEST
) -> BindPlan:
    """Return the bind that makes *grant* true, as peers of *version* read it."""
    annotations = {
        keys.POD_NODE: grant.node,
        keys.POD_TIME: str(unix_seconds),
        keys.BIND_PHASE: keys.BIND_PHASE_ALLOCATING,
        keys.BIND_TIME: str(unix_seconds),
    }
    for frame in vendors:
        if frame.key in grant.shares:
            text = encode_pod_devices(grant.shares[frame.key], version)
            annotations[frame.vendor.allocated_key] = text
            if frame.vendor.to_allocate_key:
                annotations[frame.vendor.to_allocate_key] = text
    if grant.mig:
        annotations[keys.MIG_ALLOCATIONS] = encode_mig_allocations(grant.mig)
    return BindPlan(grant.uid, grant.namespace, grant.name, grant.node, annotations)


def plain_bind(uid: str, namespace: str, name: str, node: str) -> BindPlan:
    """Return the bind of a Pod that asks for no device."""
    return BindPlan(uid, namespace, name, node, {})


def node_label(node: str) -> str | None:
    """Return the value of the Pod label that names *node*, None where the name cannot be a label's value."""
    return node if _LABEL_VALUE.fullmatch(node) else None
