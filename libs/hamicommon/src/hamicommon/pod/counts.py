"""
What the kubelet counts for a Pod: replicas of extended resources, over the Pod's whole life.

Neighbour: `amounts` has the formula, and says what the Pod takes of each device, which shrinks when init containers are
done.
"""

import math
from collections.abc import Mapping, Set
from typing import Any

from hamicommon.pod.amounts import AMOUNT_LIMIT, Amounts, most_over_time
from hamicommon.pod.containers import containers_of
from hamicommon.wire.quantity import QuantityError, parse_quantity, whole


def effective_counts(pod: Mapping[str, Any], resources: Set[str]) -> dict[str, int]:
    """
    Return how many of each of *resources* the kubelet of *pod* hands out for its whole life; without those of 0.

    An init container's replicas stay with the Pod after it has ended, and later containers reuse them. So this does
    not shrink when init containers are done, unlike what `amounts_over_time` says of devices.
    Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/manager.go (`Allocate`)
    """
    containers = containers_of(pod)
    most = most_over_time(
        [kind for _, kind in containers], [_counts_of(container, resources) for container, _ in containers]
    )
    return {name: taken.replicas for name, taken in sorted(most.items()) if taken.replicas}


def _counts_of(container: Mapping[str, Any], resources: Set[str]) -> dict[str, Amounts]:
    """Return the amounts of *resources* that *container* asks; of extended resources limit and request are equal."""
    amounts = container.get("resources") or {}
    limits, requests = amounts.get("limits") or {}, amounts.get("requests") or {}
    named = resources & (limits.keys() | requests.keys())
    return {name: Amounts(_count(limits.get(name, requests.get(name, 0)))) for name in named}


def _count(amount: str | int) -> int:
    """Return *amount* as a kubelet counts it: rounded up; 0 if it is no quantity."""
    found = whole(amount)
    if found is None:
        try:
            found = math.ceil(parse_quantity(amount))
        except QuantityError:
            return 0
    return min(max(found, 0), AMOUNT_LIMIT)
