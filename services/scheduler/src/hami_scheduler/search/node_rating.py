"""
Compute what vendors add to the score of a Node for one Pod.

Few vendors rate Nodes. Owns no rating: `VendorRules.rate` and `rate_at_best` do. Neighbours: `filter` and `prioritize`
add ratings to scores.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.search.placement import Placement
from hami_scheduler.state.ledger import Ledger, NodeEntry
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import NodeView, Prospect, VendorRules


def sign(request: PodRequest) -> int:
    """Return 1 if *request* prefers full Nodes, -1 if it prefers empty ones."""
    return -1 if request.node_policy == "spread" else 1


def is_rated(request: PodRequest) -> bool:
    """Return whether a vendor that *request* asks rates Nodes."""
    return any(rules.rate is not None for rules in request.vendors.values())


def rating(request: PodRequest, name: str, placement: Placement, ledger: Ledger) -> float:
    """Return what the vendors add to the score of Node *name* if *request* gets *placement* there."""
    entry = ledger.node(name)
    if not is_rated(request) or entry is None:
        return 0.0
    uses = ledger.device_uses(name)
    devices = {use.device.id: use.device for use in uses}
    annotations, policy = entry.inventory.vendor_annotations, request.node_policy
    return sum(
        rules.rate(NodeView(annotations, request.constraints[key], policy, placement.shares[key], uses, devices))
        for key, rules in request.vendors.items()
        if rules.rate is not None
    )


def best_ratings(request: PodRequest, nodes: NDArray[np.bool_], ledger: Ledger) -> NDArray[np.float32]:
    """Return per Node index the best that vendors can add to the score, for those in *nodes*; 0 for others."""
    ratings = np.zeros(ledger.node_count, np.float32)
    rated = [rules for rules in request.vendors.values() if rules.rate is not None]
    for index in np.flatnonzero(nodes).tolist() if rated else ():
        entry = ledger.node(ledger.node_name(index))
        if entry is not None:
            ratings[index] = sum(_best_rating(request, rules, entry, ledger) for rules in rated)
    return ratings


def _best_rating(request: PodRequest, rules: VendorRules, entry: NodeEntry, ledger: Ledger) -> float:
    if rules.rate_at_best is None:
        return sign(request) * math.inf
    devices, annotations = entry.inventory.devices, entry.inventory.vendor_annotations
    replicas = ledger.promised[entry.start : entry.start + len(devices), 0].tolist()
    used = {device.index for device, count in zip(devices, replicas, strict=True) if count}
    counts = [asked.count for c in request.containers for asked in c.requests if asked.vendor == rules.key]
    constraints, policy = request.constraints[rules.key], request.node_policy
    return rules.rate_at_best(Prospect(annotations, constraints, policy, devices, used, counts))
