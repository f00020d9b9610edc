"""
NVIDIA: modes, NUMA nodes and rated links.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go
"""

from collections.abc import Mapping, Sequence

from hami_scheduler.values.fit import Attempt, Chooser, Offer, Sharing
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.topology import choose_by_topology
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.vendor import Vendor
from hamicommon.vendors import nvidia


def frame(vendor: Vendor) -> VendorFrame:
    """Return NVIDIA as decisions see it."""
    return VendorFrame(
        vendor,
        sharing=Sharing(choose=_chooser, chooses_of_enough=True),
        is_named_by_type=False,
        mode_key=nvidia.MODE_KEY,
        numa_bind_key=nvidia.NUMA_BIND_KEY,
        pair_scores_key=nvidia.PAIR_SCORES_KEY,
        may_find_owners=True,
    )


def _chooser(attempt: Attempt) -> Chooser | None:
    return _best_linked if attempt.rules.is_topology_aware else None


def _best_linked(attempt: Attempt, offers: Sequence[Offer], _refusals: Mapping[Reason, int]) -> Sequence[Offer] | None:
    count = attempt.request.count
    return choose_by_topology(offers, count, attempt.pair_scores) if len(offers) >= count else None
