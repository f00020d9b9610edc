"""
Decide whether a Pod's requests fit into its namespace's ResourceQuotas.

Owns the limits and grants it knows, and their arithmetic. Watches deliver them, so no Pod waits for an API call. The
scheduler checks again when it places the Pod, so a missing update is harmless.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/quota.go
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hamicommon.model import Share
from hamicommon.resource_quota import PREFIX, hard_limits, strictest, unapplied_limits
from hamicommon.vendor import Vendor, limit_readers
from hamicommon.wire.pod_devices import decode_pod_devices, shares_by_container


@dataclass(frozen=True, slots=True)
class Amount:
    """Memory and cores of one vendor."""

    memory_mib: int = 0
    core_percent: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.memory_mib + other.memory_mib, self.core_percent + other.core_percent)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.memory_mib - other.memory_mib, self.core_percent - other.core_percent)

    def at_least(self, other: "Amount") -> "Amount":
        """Return the larger memory and the larger cores of both."""
        return Amount(max(self.memory_mib, other.memory_mib), max(self.core_percent, other.core_percent))


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """The limits of one namespace, by resource, and its use, by vendor key; memory in MiB."""

    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, Amount] = field(default_factory=dict)

    def excess(self, vendor: Vendor, asked: Amount) -> str | None:
        """
        Return why *asked* of *vendor* does not fit; None if it does.

        A limit of 0 blocks. An empty request always fits, even if the namespace is over its limit.
        """
        if asked == Amount():
            return None
        used = self.used.get(vendor.key, Amount())
        checks = (
            (vendor.memory_resource_name, used.memory_mib, asked.memory_mib, " MiB"),
            (vendor.core_resource_name, used.core_percent, asked.core_percent, ""),
        )
        for resource, held, wanted, unit in checks:
            limit = self.limits.get(resource)
            if limit is not None and held + wanted > limit:
                return f"{PREFIX}{resource} is {limit}{unit}, {held} in use, {wanted} asked"
        return None


@dataclass(slots=True)
class Quotas:
    """
    The limits of every namespace, and the grants of every bound Pod.

    If several ResourceQuotas limit one resource, the smallest limit counts, as everywhere in Kubernetes.
    """

    vendors: tuple[Vendor, ...]
    _limits: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """Limit by namespace, quota name and resource."""
    _unapplied: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Managed resources of each quota with scopes, by NAMESPACE/NAME."""
    _grants: dict[str, dict[str, dict[str, Amount]]] = field(default_factory=dict)
    """Grant by namespace, Pod name and vendor key; Pods without grants are absent."""
    _used: dict[str, dict[str, Amount]] = field(default_factory=dict)
    """Sum of the Pods' grants by namespace and vendor key, so a decision costs the same for any number of Pods."""

    def of(self, namespace: str) -> NamespaceQuota:
        """Return the limits and the use of *namespace*."""
        limits = strictest(self._limits.get(namespace, {}).values())
        return NamespaceQuota(limits, dict(self._used.get(namespace, {}))) if limits else NamespaceQuota()

    @property
    def has_limits(self) -> bool:
        """Whether any namespace limits a managed resource; only then do Pods matter."""
        return any(hard for quotas in self._limits.values() for hard in quotas.values())

    @property
    def unapplied(self) -> Mapping[str, tuple[str, ...]]:
        """The managed resources of quotas with scopes, by NAMESPACE/NAME of the quota; such quotas have no effect."""
        return self._unapplied

    def replace_quotas(self, quotas: Iterable[Mapping[str, Any]]) -> None:
        """Replace all quotas by *quotas*, v1 ResourceQuotas."""
        self._limits.clear()
        self._unapplied.clear()
        for quota in quotas:
            self.put_quota(quota)

    def put_quota(self, quota: Mapping[str, Any]) -> None:
        """Add *quota*, or replace its earlier version."""
        self.drop_quota(quota)
        readers = limit_readers(self.vendors)
        namespace, name = _place(quota)
        self._limits.setdefault(namespace, {})[name] = hard_limits(quota, readers)
        unapplied = tuple(unapplied_limits(quota, readers))
        if unapplied:
            self._unapplied[f"{namespace}/{name}"] = unapplied

    def drop_quota(self, quota: Mapping[str, Any]) -> None:
        """Forget *quota*."""
        namespace, name = _place(quota)
        self._limits.get(namespace, {}).pop(name, None)
        self._unapplied.pop(f"{namespace}/{name}", None)

    def forget_pods(self) -> None:
        """Forget every grant."""
        self._grants.clear()
        self._used.clear()

    def put_pod(self, pod: Mapping[str, Any]) -> None:
        """
        Add *pod*, or replace its earlier version.

        Raises:
            DecodeError: its annotation cannot be read; the Pod then counts for nothing.
        """
        self.drop_pod(pod)
        grants = granted(pod, self.vendors)
        if grants:
            namespace, name = _place(pod)
            self._grants.setdefault(namespace, {})[name] = grants
            used = self._used.setdefault(namespace, {})
            for key, grant in grants.items():
                used[key] = used.get(key, Amount()) + grant

    def drop_pod(self, pod: Mapping[str, Any]) -> None:
        """Forget *pod*."""
        namespace, name = _place(pod)
        for key, grant in self._grants.get(namespace, {}).pop(name, {}).items():
            self._used[namespace][key] -= grant


def granted(pod: Mapping[str, Any], vendors: Iterable[Vendor]) -> dict[str, Amount]:
    """
    Return what *pod* was granted, by vendor key; nothing unless it is bound and has not ended.

    Init containers that succeeded count for nothing.

    Raises:
        DecodeError: an allocation annotation cannot be read.
    """
    spec = pod.get("spec") or {}
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    if not spec.get("nodeName") or (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}:
        return {}
    inits, containers = spec.get("initContainers") or [], spec.get("containers") or []
    is_sidecar = [container.get("restartPolicy") == "Always" for container in inits]
    ended = _ended_inits(pod)
    has_ended = [container.get("name") in ended for container in inits]
    grants: dict[str, Amount] = {}
    for vendor in vendors:
        text = annotations.get(vendor.allocated_key)
        if not text:
            continue
        shares = shares_by_container(decode_pod_devices(text), len(inits) + len(containers))
        amounts = [sum((_held(share, vendor) for share in each), start=Amount()) for each in shares]
        before = [
            (is_kept, Amount() if is_over and not is_kept else amount)
            for is_kept, is_over, amount in zip(is_sidecar, has_ended, amounts, strict=False)
        ]
        grants[vendor.key] = peak(before, amounts[len(inits) :])
    return grants


def _ended_inits(pod: Mapping[str, Any]) -> set[str]:
    """Return the names of the init containers that succeeded."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    return {
        str(status.get("name"))
        for status in statuses
        if ((status.get("state") or {}).get("terminated") or {}).get("exitCode") == 0
    }


def _held(share: Share, vendor: Vendor) -> Amount:
    """Return what *share* counts; some vendors' grants have cores in another unit than quotas."""
    return Amount(share.memory_mib, share.core_percent if vendor.grants_percent else 0)


def demanded(resources: Mapping[str, Any], vendor: Vendor) -> Amount:
    """
    Return what a container with these `resources` counts against a quota of *vendor*.

    A percentage of memory has no MiB until the device is known, so it counts as 1 MiB. That rejects it if no memory is
    left, instead of letting the Pod wait for ever.
    """
    request = vendor.parse_request(resources)
    if request is None:
        return Amount()
    if vendor.amounts_before_placement:
        memory_mib, cores = vendor.amounts_before_placement(request)
    else:
        memory_mib = request.memory_mib or (1 if request.memory_percent else 0)
        cores = request.held_core_percent if vendor.grants_percent else request.core_percent
        cores = cores or vendor.cores_of_a_device
    return Amount(memory_mib * request.count, cores * request.count)


def peak(inits: Iterable[tuple[bool, Amount]], containers: Iterable[Amount]) -> Amount:
    """
    Return the most that a Pod holds at once; *inits* are (is it a sidecar, amount), in Pod order.

    Source: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
    """
    sidecars, most = Amount(), Amount()
    for is_sidecar, amount in inits:
        most = most.at_least(sidecars + amount)
        if is_sidecar:
            sidecars += amount
    return most.at_least(sum(containers, start=sidecars))


def _place(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item.get("metadata") or {}
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))
