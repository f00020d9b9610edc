"""
Vendors that need more than their description: one module each, named as in hamicommon.

A module here has a function `rules(vendor)`. A vendor without module is ordinary: it shares memory and a percentage of
compute. A module must never import another vendor's; what several need is in `vendor_parts`.
Neighbours: `values.vendor` says what a vendor may define, `docs/add-a-vendor.md` says how to add a vendor.
"""

from hami_scheduler.values.vendor import VendorRules
from hamicommon.config.device_config import DeviceConfig
from hamicommon.vendors import functions_of
from hamicommon.vendors.description import Vendor


def vendor_rules(config: DeviceConfig) -> tuple[VendorRules, ...]:
    """Return every vendor under the names of *config*, in the order their devices are listed on a Node."""
    return tuple(map(_rules, config.vendors()))


def _rules(vendor: Vendor) -> VendorRules:
    own = functions_of(vendor.name, __name__)
    rules: VendorRules = own.rules(vendor) if own else VendorRules(vendor)
    return rules
