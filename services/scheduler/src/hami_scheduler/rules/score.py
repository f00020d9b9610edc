"""
Rank what fits: devices within a Node, and Nodes.

Uses 32-bit floats and HAMi's order of operations, because what ties there must tie here. A score never decides whether
something fits. Neighbours: `values.policies` reads them, `place_container` and `filter` walk in this order.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/policy/gpu_policy.go, node_policy.go
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hami_scheduler.rules.fit import part_of
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.policies import DevicePolicy
from hamicommon.model import Request, ScoringWeights

Int64s = NDArray[np.int64]
Float32s = NDArray[np.float32]

_SCALE = np.float32(10)


def device_score(use: DeviceUse, requests: Sequence[Request], weights: ScoringWeights) -> float:
    """
    Return how full the device of *use* is, 0 (idle) to 30 (full) with the default weights.

    A request counts only if the device registered under its vendor's key instead of a model name, as in HAMi.
    """
    device = use.device
    if device.count <= 0 or device.core_percent <= 0 or device.memory_mib <= 0:
        return 0.0
    replicas, cores, memory_mib = use.replicas, use.core_percent, use.memory_mib
    for request in requests:
        if request.vendor == device.type:
            replicas += 1
            cores += request.core_percent
            percent = request.memory_percent
            memory_mib += part_of(device.memory_mib, percent) if percent else request.memory_mib
    totals = (device.count, device.core_percent, device.memory_mib)
    return _fullness((weights.slot, weights.core, weights.memory), (replicas, cores, memory_mib), totals)


@lru_cache(maxsize=4096)
def _fullness(weights: tuple[float, ...], promised: tuple[int, ...], totals: tuple[int, ...]) -> float:
    """Return the weighted sum of *promised* of *totals*; cached, because devices repeat the same few values."""
    replica, core, memory = (
        np.float32(weight) * (np.float32(amount) / np.float32(total))
        for weight, amount, total in zip(weights, promised, totals, strict=True)
    )
    return float(_SCALE * (replica + core + memory))


def device_order(uses: Sequence[DeviceUse], scores: Sequence[float], policy: DevicePolicy) -> list[int]:
    """
    Return the positions of *uses* in the order HAMi sorts them; the last is tried first.

    Sorting is stable: equal devices keep the order they came in.
    """

    def key(position: int) -> tuple[float, ...]:
        """Return the sort key of a position."""
        use, score = uses[position], scores[position]
        numa = use.device.numa
        if policy.order == "chain":
            words = ("numa", *policy.chain) if policy.is_numa_bound else policy.chain
            values = {"binpack": score, "spread": -score, "numa": float(numa)}
            return (*(values[word] for word in words), float(use.device.index))
        if policy.order == "mutex":
            return (-use.replicas, numa)
        if policy.is_numa_bound:
            return (-numa, score) if policy.order == "binpack" else (numa, -score)
        if policy.order == "binpack":
            return (score, numa)
        return (-score, numa)

    return sorted(range(len(uses)), key=key)


def node_scores(promised: Int64s, divisors: Float32s) -> Float32s:
    """
    Return how full each Node is before the Pod, 0 (idle) to 30 (full).

    *promised* has one row a Node, the sums over its devices: replicas, MiB, core percent. *divisors* come from
    `score_divisors`.
    """
    ratios = promised.astype(np.float32) / divisors
    scores: Float32s = _SCALE * ((ratios[:, 0] + ratios[:, 2]) + ratios[:, 1])
    return scores


def score_divisors(totals: Int64s) -> Float32s:
    """Return *totals*, with infinity for Nodes that lack one of the quantities, so that they score 0."""
    return np.where((totals > 0).all(axis=1, keepdims=True), totals, np.inf).astype(np.float32)
