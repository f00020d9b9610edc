"""
MetaX: whole devices and shared ones, two vendors with a module each.
"""

from hami_scheduler.rules.vendors.metax import gpu, sgpu
from hami_scheduler.values.vendor import VendorRules
from hamicommon.vendors import metax
from hamicommon.vendors.description import Vendor


def rules(vendor: Vendor) -> VendorRules:
    """Return MetaX's whole devices, or its shared ones, as decisions see them."""
    return gpu.rules(vendor) if vendor.key == metax.GPU_KEY else sgpu.rules(vendor)
