"""
Biren: only devices are counted, not memory or compute.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/biren/device.go
"""

from functools import partial

from hami_scheduler.rules.vendor_parts import COUNTED, read_whole_devices
from hami_scheduler.values.vendor import VendorRules
from hamicommon.vendors.description import Vendor


def rules(vendor: Vendor) -> VendorRules:
    """Return Biren as decisions see it."""
    return VendorRules(
        vendor,
        fit=COUNTED,
        read_devices=partial(read_whole_devices, key=vendor.register_key),
    )
