"""
AMD: compute is counted in units of the device; without an amount a share takes all memory.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/amd/device.go
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.fit import Attempt, Sharing, memory_asked
from hami_scheduler.values.inventory import node_capacity, registered
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.held import Taken
from hamicommon.model import Device
from hamicommon.vendor import Vendor


def frame(vendor: Vendor) -> VendorFrame:
    """Return AMD as decisions see it."""
    return VendorFrame(
        vendor,
        sharing=Sharing(amounts=_amounts, counts_cores=False, check_last=_refusal_of_units),
        offers=partial(_offers, vendor=vendor),
        names_model=True,
        core_units=lambda amount: amount,
    )


def _offers(node: Mapping[str, Any], vendor: Vendor) -> Sequence[Device]:
    """Return the registered devices, if the kubelet reports any: the annotation outlives a dead plugin."""
    is_alive = not vendor.resource_names or node_capacity(node, vendor.resource_names[0]) > 0
    return registered(node, vendor.register_key) if is_alive else ()


def _amounts(use: DeviceUse, attempt: Attempt) -> Taken:
    units = use.device.core_percent * attempt.request.core_percent // 100
    return Taken(1, memory_asked(attempt.request, use.device), max(1, units))


def _refusal_of_units(use: DeviceUse, attempt: Attempt) -> Reason | None:
    left = use.device.core_percent - use.core_percent
    return Reason.CORE if left < _amounts(use, attempt).core_percent else None
