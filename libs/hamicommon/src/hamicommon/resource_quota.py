"""
What a ResourceQuota says of the resources that are shared here.

HAMi's quotas are ordinary ResourceQuotas whose `limits.<resource>` kube-apiserver cannot enforce: a percentage, or a
default, becomes an amount only in a scheduler. Neighbours: `vendors` says how each limit is read, webhook and scheduler
compare these limits with what they count.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/quota.go
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from hamicommon.quantity import QuantityError

PREFIX = "limits."
Readers = Mapping[str, Callable[[str | int], int]]
"""Per resource that may be limited: its amount in the unit in which it is counted; raises QuantityError."""


def hard_limits(quota: Mapping[str, Any], readers: Readers) -> dict[str, int]:
    """
    Return the limits that *quota*, a v1 ResourceQuota, sets to the resources of *readers*; what is no quantity is none.

    A quota with scopes limits nothing: what only the Pods it selects hold is not known.

    >>> from hamicommon.quantity import rounded_down
    >>> hard_limits({"spec": {"hard": {"limits.example.com/memory": "4k"}}}, {"example.com/memory": rounded_down})
    {'example.com/memory': 4000}
    """
    return {} if _has_scopes(quota) else _limits_named(quota, readers)


def unapplied_limits(quota: Mapping[str, Any], readers: Readers) -> dict[str, int]:
    """
    Return the limits that *quota* names and does not set, because it has scopes.

    >>> from hamicommon.quantity import rounded_down
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
    Return the smallest limit of each resource, as Kubernetes counts where several quotas name one.

    >>> strictest([{"a": 3, "b": 1}, {"a": 2}])
    {'a': 2, 'b': 1}
    """
    smallest: dict[str, int] = {}
    for one in limits:
        for resource, limit in one.items():
            smallest[resource] = min(limit, smallest.get(resource, limit))
    return smallest
