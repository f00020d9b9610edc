"""
Vendors that need more than their description: one module each, named as in hamicommon.

A module here has a function `frame(vendor)`. A vendor without module is ordinary: it shares memory and a percentage of
compute. A module must never import another vendor's; what several need is in `vendor_parts`.
Neighbours: `vendor` defines a frame, `docs/add-a-vendor.md` says how to add a vendor.
"""

from hami_scheduler.values.vendor import VendorFrame
from hamicommon.config import DeviceConfig
from hamicommon.vendor import Vendor
from hamicommon.vendors import functions_of


def vendor_frames(config: DeviceConfig) -> tuple[VendorFrame, ...]:
    """Return every vendor under the names of *config*, in the order their devices are listed on a Node."""
    return tuple(map(_frame, config.vendors()))


def _frame(vendor: Vendor) -> VendorFrame:
    own = functions_of(vendor.name, __name__)
    frame: VendorFrame = own.frame(vendor) if own else VendorFrame(vendor)
    return frame
