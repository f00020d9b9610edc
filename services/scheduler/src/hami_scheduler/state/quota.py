"""
What a namespace may hold: limits of ResourceQuotas on a vendor's memory or cores.

Owns the reading of ResourceQuota objects and the sums of what namespaces hold. kube-apiserver cannot enforce these
limits, because a percentage or a default becomes an amount only here. Neighbours: `cluster` reports every change of a
grant, `place_container` asks before each share.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/quota.go
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import Problem
from hami_scheduler.values.vendor import VendorRules
from hamicommon.vendors.description import limit_readers
from hamicommon.wire.resource_quota import hard_limits, strictest, unapplied_limits


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a namespace may still take of one vendor; None without a limit."""

    memory_mib: int | None = None
    core_percent: int | None = None

    def is_exceeded_by(self, memory_mib: Any, core_percent: int) -> Any:
        """Return whether a Pod that takes this much exceeds a limit: a bool, or an array for an array of MiB."""
        exceeds_memory = self.memory_mib is not None and memory_mib > self.memory_mib
        return exceeds_memory | (self.core_percent is not None and core_percent > self.core_percent)

    def widened_by(self, memory_mib: int, core_percent: int) -> "Allowance":
        """Return the allowance once this much is no longer taken."""
        return Allowance(
            None if self.memory_mib is None else self.memory_mib + memory_mib,
            None if self.core_percent is None else self.core_percent + core_percent,
        )


UNLIMITED = Allowance()


@dataclass(frozen=True, slots=True)
class QuotaUse:
    """One limit and what is held under it, for metrics; memory in MiB."""

    namespace: str
    resource: str
    used: int
    limit: int | None


@dataclass(slots=True)
class Quotas:
    """
    The limits of every namespace and what its Pods hold.

    If several ResourceQuotas limit one resource, the smallest limit counts, as in Kubernetes.
    """

    vendors: tuple[VendorRules, ...]
    report: Callable[[str, Problem], None] = lambda _name, _problem: None
    """Called for each quota, as NAMESPACE/NAME, that has limits which are not applied."""
    version: int = 0
    """Increases whenever a limit may have changed."""
    _hard: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """Per (namespace, quota name): resource to limit, of memory in MiB."""
    _unapplied: dict[tuple[str, str], dict[str, int]] = field(default_factory=dict)
    """Per (namespace, quota name) of quotas with scopes: the limits that are not applied."""
    _limits: dict[str, dict[str, int]] = field(default_factory=dict)
    """Per namespace: resource to the limit that counts."""
    _memory: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Per (namespace, vendor key): MiB held."""
    _cores: Counter[tuple[str, str]] = field(default_factory=Counter)

    def put(self, quota: Mapping[str, Any]) -> None:
        """Replace the limits of *quota*, a v1 ResourceQuota."""
        readers = limit_readers(rules.vendor for rules in self.vendors)
        namespace, name = _key(quota)
        self._hard[namespace, name] = hard_limits(quota, readers)
        self._refresh(namespace)
        unapplied, before = unapplied_limits(quota, readers), self._unapplied.get((namespace, name), {})
        self._unapplied[namespace, name] = unapplied
        if unapplied.keys() - before.keys():
            reason = f"a quota with scopes limits nothing here; {', '.join(unapplied)} is not limited by it"
            self.report(f"{namespace}/{name}", Problem("scopes", reason))

    def drop(self, quota: Mapping[str, Any]) -> None:
        """Forget *quota*."""
        namespace, name = _key(quota)
        self._hard.pop((namespace, name), None)
        self._unapplied.pop((namespace, name), None)
        self._refresh(namespace)

    def replace(self, quotas: list[dict[str, Any]]) -> None:
        """Take *quotas* as all there are."""
        self.version += 1
        self._hard.clear()
        self._limits.clear()
        names = set(map(_key, quotas))
        self._unapplied = {name: told for name, told in self._unapplied.items() if name in names}
        for quota in quotas:
            self.put(quota)

    def count(self, grant: Grant, sign: int) -> None:
        """Count *grant* as held (*sign* 1) or no longer held (-1)."""
        for uuid, amount in grant.amounts.items():
            key = (grant.namespace, grant.vendors[uuid])
            self._memory[key] += sign * amount.memory_mib
            self._cores[key] += sign * amount.core_percent

    def allowance(self, namespace: str, vendor: VendorRules) -> Allowance:
        """Return what *namespace* may still take of *vendor*."""
        limits = self._limits.get(namespace)
        if not limits:
            return UNLIMITED
        memory, cores = limits.get(vendor.vendor.memory_resource_name), limits.get(vendor.vendor.core_resource_name)
        if not vendor.fit.counts_cores:
            cores = None  # what is held of them is no percentage
        key = (namespace, vendor.key)
        return Allowance(memory, cores).widened_by(-self._memory[key], -self._cores[key])

    def recount(self, grants: Iterable[Grant]) -> int:
        """Compute every sum from *grants* again, keep the result, and return how many sums were wrong."""
        fresh = Quotas(self.vendors)
        for grant in grants:
            fresh.count(grant, 1)
        drift = _differences(self._memory, fresh._memory) + _differences(self._cores, fresh._cores)
        self._memory, self._cores = fresh._memory, fresh._cores
        return drift

    def uses(self) -> list[QuotaUse]:
        """Return every limit and every use, sorted by namespace and resource."""
        found = []
        held = {key for key, amount in (self._memory + self._cores).items() if amount}
        namespaces = {namespace for namespace, _ in held} | set(self._limits)
        for namespace in sorted(namespaces):
            limits = self._limits.get(namespace, {})
            for rules in self.vendors:
                vendor = rules.vendor
                for resource, sums in (
                    (vendor.memory_resource_name, self._memory),
                    (vendor.core_resource_name, self._cores),
                ):
                    used, limit = sums[namespace, rules.key], limits.get(resource)
                    if used or limit is not None:
                        found.append(QuotaUse(namespace, resource, used, limit))
        return found

    def _refresh(self, namespace: str) -> None:
        self.version += 1
        limits = strictest(hard for (owner, _), hard in self._hard.items() if owner == namespace)
        if limits:
            self._limits[namespace] = limits
        else:
            self._limits.pop(namespace, None)


def _key(quota: Mapping[str, Any]) -> tuple[str, str]:
    metadata = quota.get("metadata") or {}
    return metadata.get("namespace") or "default", metadata.get("name") or ""


def _differences(one: Counter[tuple[str, str]], other: Counter[tuple[str, str]]) -> int:
    return sum(1 for key in one.keys() | other.keys() if one[key] != other[key])
