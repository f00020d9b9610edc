"""
Biren: only devices are counted, not memory or compute.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/biren/device.go
"""

from functools import partial

from hami_scheduler.values.vendor import VendorFrame
from hami_scheduler.values.vendor_parts.sharing import COUNTED, offer_whole
from hamicommon.vendor import Vendor


def frame(vendor: Vendor) -> VendorFrame:
    """Return Biren as decisions see it."""
    return VendorFrame(
        vendor,
        sharing=COUNTED,
        offers=partial(offer_whole, key=vendor.register_key),
    )
