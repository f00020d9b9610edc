"""
Rate the links between a Node's devices, with HAMi's numbers.

The score of a pair is a number for the way over PCIe, plus 100 for each NVLink. Schedulers choose devices by it under
the policy `topology-aware`.
Neighbours: `nvml` reads the links, `hamicommon.wire.pair_scores` encodes the scores, `announcement` writes them.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/calculate_score.go,
https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/links.go
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations

PCIE_SCORES: Mapping[int, int] = {0: 60, 10: 50, 20: 40, 30: 30, 40: 20, 50: 10}
"""
Score by the nearest common ancestor, an `nvmlGpuTopologyLevel_t`.

Same board, single switch, several switches, host bridge, NUMA node, the whole system.
"""
NVLINK_SCORE = 100
NVLINKS_MAX = 18
"""More links than any device has count as none, as in HAMi."""


@dataclass(frozen=True, slots=True)
class LinkedDevice:
    """One device and its links, as the driver describes them."""

    uuid: str
    bus_id: str
    ancestors: Mapping[str, int] = field(default_factory=dict)
    """Level of the nearest common ancestor with another device, by its UUID; absent if the driver does not know it."""
    remote_bus_ids: tuple[str, ...] = ()
    """Bus ID at the other end of each active NVLink: another device or a switch."""
    switch_links: int = 0
    """Active NVLinks that end at an NVSwitch."""


@dataclass(frozen=True, slots=True)
class LinkScores:
    """The scores of all pairs, and the pairs that the two devices describe differently."""

    scores: Mapping[str, Mapping[str, int]]
    """By both UUIDs."""
    asymmetric: tuple[tuple[str, str], ...] = ()
    """Each pair once. Its score is 0."""


def link_scores(devices: Sequence[LinkedDevice], offered: Collection[str]) -> LinkScores:
    """
    Return the score of each pair of *devices* whose UUIDs are *offered*, in their order.

    >>> ends = [LinkedDevice("GPU-a", "0000:01:00.0", {"GPU-b": 50}, ("0000:02:00.0",) * 2),
    ...         LinkedDevice("GPU-b", "0000:02:00.0", {"GPU-a": 50}, ("0000:01:00.0",) * 2)]
    >>> link_scores(ends, ["GPU-a", "GPU-b"]).scores
    {'GPU-a': {'GPU-b': 210}, 'GPU-b': {'GPU-a': 210}}
    """
    known = [device for device in devices if device.uuid in offered]
    scores: dict[str, dict[str, int]] = {device.uuid: {} for device in known}
    asymmetric = []
    for one, other in permutations(known, 2):
        there, back = _link_parts(one, other), _link_parts(other, one)
        is_symmetric = len(there) == len(back)
        scores[one.uuid][other.uuid] = sum(there) if is_symmetric else 0
        if not is_symmetric and (other.uuid, one.uuid) not in asymmetric:
            asymmetric.append((one.uuid, other.uuid))
    return LinkScores(scores, tuple(asymmetric))


def _link_parts(one: LinkedDevice, other: LinkedDevice) -> list[int]:
    """Return the scores of the links from *one* to *other*, at most one for PCIe and one for NVLink."""
    parts = (PCIE_SCORES.get(one.ancestors.get(other.uuid, -1), 0), NVLINK_SCORE * _nvlinks(one, other))
    return [part for part in parts if part]


def _nvlinks(one: LinkedDevice, other: LinkedDevice) -> int:
    """Return the number of NVLinks between two devices; through switches it is what both of them have."""
    direct = _plausible(sum(_same_bus(remote, other.bus_id) for remote in one.remote_bus_ids))
    if direct or not one.remote_bus_ids:
        return direct
    return _plausible(min(one.switch_links, other.switch_links))


def _plausible(count: int) -> int:
    return count if count <= NVLINKS_MAX else 0


def _same_bus(one: str, other: str) -> bool:
    """
    Return whether two bus IDs are of one device; the PCI domain has four or eight digits.

    >>> _same_bus("00000000:0A:00.0", "0000:0a:00.0"), _same_bus("00000001:0A:00.0", "0000:0a:00.0")
    (True, False)
    """
    return _with_long_domain(one) == _with_long_domain(other)


def _with_long_domain(bus_id: str) -> str:
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain:0>8}:{rest}"
