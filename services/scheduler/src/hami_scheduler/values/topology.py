"""
Choose the best connected devices, if more are acceptable than asked.

The ratings of the links come from the Node's device plugin.
Neighbours: `inventory` reads the ratings, `vendors.nvidia` asks.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`computeBestCombination`)
"""

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Protocol, TypeVar

from hami_scheduler.values.inventory import PairScores


class OnDevice(Protocol):
    """Something that sits on one device."""

    @property
    def uuid(self) -> str:
        """The device."""


_Placed = TypeVar("_Placed", bound=OnDevice)


def choose_by_topology(shares: Sequence[_Placed], count: int, pair_scores: PairScores) -> list[_Placed]:
    """
    Return *count* of *shares*, one device each: those with the best links to each other.

    A single device is the one with the worst links to the rest, so that well-connected groups stay whole. The first in
    order wins a tie. A missing rating counts 0. If the two ends of a link rate it differently, the device that comes
    first in *shares* decides.
    """
    if len(shares) <= count:
        return list(shares)
    if count == 1:
        return [min(shares, key=lambda share: sum(_rating(share, other, pair_scores) for other in shares))]
    return list(max(combinations(shares, count), key=lambda group: _group_rating(group, pair_scores)))


def _group_rating(group: Iterable[OnDevice], pair_scores: PairScores) -> int:
    return sum(_rating(one, other, pair_scores) for one, other in combinations(group, 2))


def _rating(one: OnDevice, other: OnDevice, pair_scores: PairScores) -> int:
    return 0 if one.uuid == other.uuid else pair_scores.get(one.uuid, {}).get(other.uuid, 0)
