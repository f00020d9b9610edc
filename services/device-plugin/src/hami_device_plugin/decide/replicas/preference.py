"""
Choose among free replicas when no Pod's annotation names the devices.

The policies are those of NVIDIA's plugin. `distributed` takes from the device with the fewest allocated replicas,
`packed` from the one with the most. `aligned` takes from the devices with the best links to each other.
Neighbours: `pending` reads the annotations, `calls` asks it first.
Source: https://github.com/NVIDIA/k8s-device-plugin/blob/v0.20.0/internal/rm/allocate.go
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb

from hami_device_plugin.decide.replicas.ids import device_of_replica

ANNOTATION, ALIGNED, DISTRIBUTED, PACKED = "annotation", "aligned", "distributed", "packed"
POLICIES = (ANNOTATION, ALIGNED, DISTRIBUTED, PACKED)
"""`annotation` chooses nothing beyond what a Pod's annotation names, as in HAMi."""

PairScores = Mapping[str, Mapping[str, int]]
"""The score of the link between two devices, by both UUIDs."""

GROUPS_MAX = 20_000
"""Groups that `aligned` compares, about 0.1 s. It covers every group of 16 devices."""


@dataclass(frozen=True, slots=True)
class PreferredRequest:
    """One container's part of a GetPreferredAllocation call."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Preference:
    """A policy, and what it needs to know of the offered devices."""

    policy: str = ANNOTATION
    counts: Mapping[str, int] = field(default_factory=dict)
    """Replicas of each device, by UUID in the order of the devices; no other device is preferred."""
    pair_scores: PairScores = field(default_factory=dict)
    """Links without a score count 0."""

    def choose(self, request: PreferredRequest) -> list[str] | None:
        """Return the replicas to prefer, those that must be included first; None if there are too few."""
        free = _by_device(request.available, self.counts, excluded=request.must_include)
        needed = request.size - len(request.must_include)
        if self.policy == ANNOTATION or not 0 <= needed <= sum(map(len, free.values())):
            return None
        chosen = list(request.must_include)
        if self.policy == ALIGNED:
            included = {device_of_replica(replica) for replica in request.must_include}
            others = [device for device in free if device not in included]
            for device in _best_linked(others, min(needed, len(others)), included, self.pair_scores):
                chosen.append(free[device].pop(0))
        return self._fill(chosen, free, request.size)

    def _fill(self, chosen: list[str], free: dict[str, list[str]], size: int) -> list[str]:
        """
        Return *chosen* with replicas of *free* added one at a time, until there are *size*.

        If devices have equally many allocated replicas, the one with fewer replicas in this answer is next.
        """
        taken = Counter(map(device_of_replica, chosen))
        sign = -1 if self.policy == PACKED else 1
        while len(chosen) < size:
            candidates = [device for device, replicas in free.items() if replicas]
            device = min(
                candidates, key=lambda device: (sign * (self.counts[device] - len(free[device])), taken[device])
            )
            chosen.append(free[device].pop(0))
            taken[device] += 1
        return chosen


def _by_device(available: Sequence[str], devices: Collection[str], excluded: Collection[str]) -> dict[str, list[str]]:
    """Return the replicas of each of *devices*, in the kubelet's order; devices without one are left out."""
    found: dict[str, list[str]] = {device: [] for device in devices}
    for replica in available:
        if replica not in excluded and device_of_replica(replica) in found:
            found[device_of_replica(replica)].append(replica)
    return {device: replicas for device, replicas in found.items() if replicas}


def _best_linked(devices: Sequence[str], count: int, included: Collection[str], scores: PairScores) -> Sequence[str]:
    """
    Return *count* of *devices* that have the best links to each other and to *included*.

    Among equally good groups it is the one that leaves the best links among the rest, so that well-connected groups
    stay whole. The first in order wins a tie. If there are too many groups to compare, the group grows by the best
    linked device each time.
    """
    if comb(len(devices), count) > GROUPS_MAX:
        group: list[str] = []
        while len(group) < count:
            near = [*included, *group]
            rest = [device for device in devices if device not in group]
            group.append(max(rest, key=lambda device: sum(_score(device, other, scores) for other in near)))
        return group
    towards = {device: sum(_score(device, other, scores) for other in included) for device in devices}
    all_links = {device: sum(_score(device, other, scores) for other in devices) for device in devices}
    total = sum(all_links.values()) // 2

    def rating(group: Sequence[str]) -> tuple[int, int]:
        within = sum(_score(one, other, scores) for one, other in combinations(group, 2))
        left = total - sum(all_links[device] for device in group) + within
        return within + sum(towards[device] for device in group), left

    return max(combinations(devices, count), key=rating)


def _score(one: str, other: str, scores: PairScores) -> int:
    return 0 if one == other else scores.get(one, {}).get(other, 0)
