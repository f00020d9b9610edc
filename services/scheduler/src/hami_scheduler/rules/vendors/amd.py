"""
AMD: compute is counted in units of the device; without an amount a share takes all memory.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/amd/device.go
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hami_scheduler.rules.fit import memory_asked, part_of
from hami_scheduler.values.attempt import Attempt
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.inventory import node_capacity, registered
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.vendor import FitRules, VendorRules
from hamicommon.model import Device
from hamicommon.pod.amounts import Amounts
from hamicommon.vendors.description import Vendor


def rules(vendor: Vendor) -> VendorRules:
    """Return AMD as decisions see it."""
    return VendorRules(
        vendor,
        fit=FitRules(amounts=_amounts, counts_cores=False, check_last=_refusal_of_units),
        read_devices=partial(_read_devices, vendor=vendor),
        names_model=True,
        core_units=lambda amount: amount,
    )


def _read_devices(node: Mapping[str, Any], vendor: Vendor) -> Sequence[Device]:
    """Return the registered devices, if the kubelet reports any: the annotation outlives a dead plugin."""
    is_alive = not vendor.resource_names or node_capacity(node, vendor.resource_names[0]) > 0
    return registered(node, vendor.register_key) if is_alive else ()


def _amounts(use: DeviceUse, attempt: Attempt) -> Amounts:
    units = part_of(use.device.core_percent, attempt.request.core_percent)
    return Amounts(1, memory_asked(attempt.request, use.device.memory_mib), max(1, units))


def _refusal_of_units(use: DeviceUse, attempt: Attempt) -> Reason | None:
    left = use.device.core_percent - use.core_percent
    return Reason.CORE if left < _amounts(use, attempt).core_percent else None
