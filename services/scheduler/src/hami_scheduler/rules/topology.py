"""
Choose the best connected devices, if more are acceptable than asked.

The ratings of the links come from the Node's device plugin.
Neighbours: `inventory` reads the ratings, `vendors.nvidia` asks.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`computeBestCombination`)
"""

from itertools import combinations

from hami_scheduler.values.attempt import Options, ShareOption
from hami_scheduler.values.inventory import PairScores


def choose_by_topology(options: Options, count: int, pair_scores: PairScores) -> Options:
    """
    Return *count* of *options*, one device each: those with the best links to each other.

    A single device is the one with the worst links to the rest, so that well-connected groups stay whole. The first in
    order wins a tie. A missing rating counts 0. If the two ends of a link rate it differently, the device that comes
    first in *options* decides.
    """
    if len(options) <= count:
        return options
    if count == 1:
        return [min(options, key=lambda one: sum(_rating(one, other, pair_scores) for other in options))]
    return max(
        combinations(options, count),
        key=lambda group: sum(_rating(one, other, pair_scores) for one, other in combinations(group, 2)),
    )


def _rating(one: ShareOption, other: ShareOption, pair_scores: PairScores) -> int:
    return 0 if one.uuid == other.uuid else pair_scores.get(one.uuid, {}).get(other.uuid, 0)
