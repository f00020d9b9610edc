"""
MetaX: whole devices and shared ones, two vendors with a module each.
"""

from hami_scheduler.values.vendor import VendorFrame
from hami_scheduler.values.vendors.metax import gpu, sgpu
from hamicommon.vendor import Vendor
from hamicommon.vendors import metax


def frame(vendor: Vendor) -> VendorFrame:
    """Return MetaX's whole devices, or its shared ones, as decisions see them."""
    return gpu.frame(vendor) if vendor.key == metax.GPU_KEY else sgpu.frame(vendor)
