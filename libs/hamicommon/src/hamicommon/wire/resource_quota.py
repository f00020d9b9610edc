"""
The limits that a ResourceQuota sets on shared resources.

HAMi's quotas are ordinary ResourceQuotas with `limits.<resource>`. kube-apiserver cannot enforce them, because a
percentage or a default becomes an amount only in the scheduler.
Neighbours: `description` reads each limit, webhook and scheduler compare the limits with what they count.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/quota.go
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from hamicommon.wire.quantity import QuantityError

PREFIX = "limits."
Readers = Mapping[str, Callable[[str | int], int]]
"""For each resource that can be limited: reads its amount in the unit that is counted, or raises QuantityError."""


def hard_limits(quota: Mapping[str, Any], readers: Readers) -> dict[str, int]:
    """
    Return the limits of *quota*, a v1 ResourceQuota, on the resources of *readers*.

    Values that are no quantity are ignored. A quota with scopes limits nothing, because the Pods it selects are not
    counted separately.

    >>> from hamicommon.wire.quantity import rounded_down
    >>> hard_limits({"spec": {"hard": {"limits.example.com/memory": "4k"}}}, {"example.com/memory": rounded_down})
    {'example.com/memory': 4000}
    """
    return {} if _has_scopes(quota) else _limits_named(quota, readers)


def unapplied_limits(quota: Mapping[str, Any], readers: Readers) -> dict[str, int]:
    """
    Return the limits in *quota* that do not apply because it has scopes.

    >>> from hamicommon.wire.quantity import rounded_down
    >>> spec = {"hard": {"limits.example.com/memory": "0"}, "scopes": ["BestEffort"]}
    >>> unapplied_limits({"spec": spec}, {"example.com/memory": rounded_down})
    {'example.com/memory': 0}
    """
    return _limits_named(quota, readers) if _has_scopes(quota) else {}


def _has_scopes(quota: Mapping[str, Any]) -> bool:
    spec = quota.get("spec") or {}
    return bool(spec.get("scopes") or (spec.get("scopeSelector") or {}).get("matchExpressions"))


def _limits_named(quota: Mapping[str, Any], readers: Readers) -> dict[str, int]:
    hard = (quota.get("spec") or {}).get("hard") or {}
    found: dict[str, int] = {}
    for resource, read in readers.items():
        if PREFIX + resource in hard:
            with suppress(QuantityError):
                found[resource] = read(hard[PREFIX + resource])
    return found


def strictest(limits: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """
    Return the smallest limit of each resource, which applies in Kubernetes if several quotas limit it.

    >>> strictest([{"a": 3, "b": 1}, {"a": 2}])
    {'a': 2, 'b': 1}
    """
    smallest: dict[str, int] = {}
    for one in limits:
        for resource, limit in one.items():
            smallest[resource] = min(limit, smallest.get(resource, limit))
    return smallest
