"""
Compute what vendors add to the score of a Node for one Pod.

Few vendors rate Nodes. Owns no rating: `VendorFrame.rate` and `rate_at_best` do. Neighbours: `filter` and `prioritize`
add ratings to scores.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.decide.place_pod import Placement
from hami_scheduler.state.ledger import Ledger, NodeEntry
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import NodeView, Prospect, VendorFrame


def sign(request: PodRequest) -> int:
    """Return 1 if *request* prefers full Nodes, -1 if it prefers empty ones."""
    return -1 if request.node_policy == "spread" else 1


def is_rated(request: PodRequest) -> bool:
    """Return whether a vendor that *request* asks rates Nodes."""
    return any(frame.rate is not None for frame in request.vendors.values())


def rating(request: PodRequest, name: str, placement: Placement, ledger: Ledger) -> float:
    """Return what the vendors add to the score of Node *name* if *request* gets *placement* there."""
    frames = [frame for frame in request.vendors.values() if frame.rate is not None]
    entry = ledger.node(name)
    if not frames or entry is None:
        return 0.0
    uses = ledger.device_uses(name)
    devices = {use.device.id: use.device for use in uses}
    total = 0.0
    for frame in frames:
        view = NodeView(
            placement.shares[frame.key],
            uses,
            devices,
            entry.inventory.notes,
            request.rules[frame.key],
            request.node_policy,
        )
        total += frame.rate(view) if frame.rate else 0.0
    return total


def best_ratings(request: PodRequest, nodes: NDArray[np.bool_], ledger: Ledger) -> NDArray[np.float32]:
    """Return per Node index the best that vendors can add to the score, for those in *nodes*; 0 for others."""
    ratings = np.zeros(ledger.node_count, np.float32)
    frames = [frame for frame in request.vendors.values() if frame.rate is not None]
    for index in np.flatnonzero(nodes).tolist() if frames else ():
        entry = ledger.node(ledger.node_name(index))
        if entry is not None:
            ratings[index] = sum(_best_rating(request, frame, entry, ledger) for frame in frames)
    return ratings


def _best_rating(request: PodRequest, frame: VendorFrame, entry: NodeEntry, ledger: Ledger) -> float:
    if frame.rate_at_best is None:
        return sign(request) * math.inf
    devices = entry.inventory.devices
    replicas = ledger.promised[entry.start : entry.start + len(devices), 0].tolist()
    used = {device.index for device, count in zip(devices, replicas, strict=True) if count}
    counts = [asked.count for c in request.containers for asked in c.requests if asked.vendor == frame.key]
    rules = request.rules[frame.key]
    return frame.rate_at_best(Prospect(devices, used, entry.inventory.notes, counts, rules, request.node_policy))
