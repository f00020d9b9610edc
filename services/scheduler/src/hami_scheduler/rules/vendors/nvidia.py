"""
NVIDIA: modes, NUMA nodes and rated links.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go
"""

from hami_scheduler.rules.topology import choose_by_topology
from hami_scheduler.values.attempt import Attempt, Chooser, Options, Refusals
from hami_scheduler.values.vendor import FitRules, VendorRules
from hamicommon.vendors import nvidia
from hamicommon.vendors.description import Vendor


def rules(vendor: Vendor) -> VendorRules:
    """Return NVIDIA as decisions see it."""
    return VendorRules(
        vendor,
        fit=FitRules(choose=_chooser, chooses_of_enough=True),
        is_named_by_type=False,
        mode_key=nvidia.MODE_KEY,
        mig_preference_key=nvidia.MIG_PREFERENCE_KEY,
        numa_bind_key=nvidia.NUMA_BIND_KEY,
        pair_scores_key=nvidia.PAIR_SCORES_KEY,
        may_find_owners=True,
    )


def _chooser(attempt: Attempt) -> Chooser | None:
    return _best_linked if attempt.constraints.is_topology_aware else None


def _best_linked(attempt: Attempt, options: Options, _refusals: Refusals) -> Options | None:
    count = attempt.request.count
    return choose_by_topology(options, count, attempt.pair_scores) if len(options) >= count else None
