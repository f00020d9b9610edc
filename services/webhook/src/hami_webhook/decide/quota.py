"""
Decide whether a Pod's requests fit into its namespace's ResourceQuotas.

Owns the limits and grants it knows, and their arithmetic. Watches deliver them, so no Pod waits for an API call. The
scheduler checks again when it places the Pod, so a missing update is harmless.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/quota.go
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

from hamicommon.pod.amounts import NOTHING, Amounts, most_over_time
from hamicommon.pod.containers import ContainerKind
from hamicommon.pod.reading import Pod, read_pod
from hamicommon.vendors.description import Vendor, limit_readers
from hamicommon.wire.resource_quota import PREFIX, hard_limits, strictest, unapplied_limits


@dataclass(frozen=True, slots=True)
class NamespaceQuota:
    """The limits of one namespace, by resource, and its use, by vendor key; memory in MiB."""

    limits: Mapping[str, int] = field(default_factory=dict)
    used: Mapping[str, Amounts] = field(default_factory=dict)

    def excess(self, vendor: Vendor, asked: Amounts) -> str | None:
        """
        Return why *asked* of *vendor* does not fit; None if it does.

        A limit of 0 blocks. An empty request always fits, even if the namespace is over its limit.
        """
        if asked == NOTHING:
            return None
        used = self.used.get(vendor.key, NOTHING)
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
    _grants: dict[str, dict[str, dict[str, Amounts]]] = field(default_factory=dict)
    """Grant by namespace, Pod name and vendor key; Pods without grants are absent."""
    _used: dict[str, dict[str, Amounts]] = field(default_factory=dict)
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
                used[key] = used.get(key, NOTHING).plus(grant)

    def drop_pod(self, pod: Mapping[str, Any]) -> None:
        """Forget *pod*."""
        namespace, name = _place(pod)
        for key, grant in self._grants.get(namespace, {}).pop(name, {}).items():
            self._used[namespace][key] = self._used[namespace][key].minus(grant)


def granted(item: Mapping[str, Any], vendors: Sequence[Vendor]) -> dict[str, Amounts]:
    """
    Return what the Pod in *item* was granted, by vendor key; nothing unless it is bound and has not ended.

    A namespace pays for each device what the Pod takes from it at its peak, as in the scheduler.

    Raises:
        DecodeError: an allocation annotation cannot be read.
    """
    annotations = (item.get("metadata") or {}).get("annotations") or {}
    granting = [vendor for vendor in vendors if annotations.get(vendor.allocated_key)]
    if not granting:
        return {}
    pod = read_pod(item, vendors)
    if not pod.holds:
        return {}
    return {vendor.key: _granted(pod, vendor) for vendor in granting}


def _granted(pod: Pod, vendor: Vendor) -> Amounts:
    """Return the sum over devices; some vendors' grants have cores in another unit than quotas, and count none."""
    by_device = pod.amounts(pod.granted(vendor.allocated_key, vendor.key).shares)
    whole = reduce(Amounts.plus, by_device.values(), NOTHING)
    return Amounts(memory_mib=whole.memory_mib, core_percent=whole.core_percent if vendor.grants_percent else 0)


def demanded(resources: Mapping[str, Any], vendor: Vendor) -> Amounts:
    """
    Return what a container with these `resources` counts against a quota of *vendor*.

    A percentage of memory has no MiB until the device is known, so it counts as 1 MiB. That rejects it if no memory is
    left, instead of letting the Pod wait for ever.
    """
    request = vendor.parse_request(resources)
    if request is None:
        return NOTHING
    if vendor.amounts_before_placement:
        memory_mib, cores = vendor.amounts_before_placement(request)
    else:
        memory_mib = request.memory_mib or (1 if request.memory_percent else 0)
        cores = request.held_core_percent if vendor.grants_percent else request.core_percent
        cores = cores or vendor.cores_of_a_device
    return Amounts(memory_mib=memory_mib * request.count, core_percent=cores * request.count)


def demanded_by_pod(containers: Iterable[tuple[ContainerKind, Mapping[str, Any]]], vendor: Vendor) -> Amounts:
    """Return the most that a Pod of *containers*, kinds and `resources` in Pod order, counts for *vendor* at once."""
    kinds, resources = zip(*containers, strict=True)
    most = most_over_time(kinds, [{vendor.key: demanded(each, vendor)} for each in resources])
    return most.get(vendor.key, NOTHING)


def _place(item: Mapping[str, Any]) -> tuple[str, str]:
    metadata = item.get("metadata") or {}
    return str(metadata.get("namespace", "")), str(metadata.get("name", ""))
