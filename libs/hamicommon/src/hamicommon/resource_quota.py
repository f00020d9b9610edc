"""
What a ResourceQuota says of the resources that are shared here.

HAMi's quotas are ordinary ResourceQuotas whose `limits.<resource>` kube-apiserver cannot enforce: a percentage, or a
default, becomes an amount only in a scheduler. Neighbours: webhook and scheduler compare these limits with what they
count.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/quota.go
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from hamicommon.quantity import whole

PREFIX = "limits."


def hard_limits(quota: Mapping[str, Any], resources: Collection[str]) -> dict[str, int]:
    """
    Return the limit of each of *resources* that *quota*, a v1 ResourceQuota, names; one that is not whole is none.

    >>> hard_limits({"spec": {"hard": {"limits.nvidia.com/gpumem": "4k", "pods": "3"}}}, {"nvidia.com/gpumem"})
    {'nvidia.com/gpumem': 4000}
    """
    found: dict[str, int] = {}
    for key, text in ((quota.get("spec") or {}).get("hard") or {}).items():
        resource, limit = key.removeprefix(PREFIX), whole(text)
        if key.startswith(PREFIX) and resource in resources and limit is not None:
            found[resource] = limit
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
