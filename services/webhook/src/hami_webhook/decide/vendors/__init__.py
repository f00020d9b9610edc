"""
What admission does for each vendor that needs more than its description: one module for each, named as in hamicommon.

A module here has a function `rules(vendor)`. A vendor without module has its resources counted and nothing changed.
A module may import `rules`, `amounts` and `pod`, and must never import another vendor's.
"""

from hami_webhook.decide.rules import Rules, counted
from hamicommon.config import DeviceConfig
from hamicommon.vendor import Vendor
from hamicommon.vendors import functions_of


def all_rules(config: DeviceConfig) -> tuple[Rules, ...]:
    """Return the rules of every vendor of the device config, one entry a chip where a vendor has several."""
    return tuple(map(_rules, config.vendors()))


def _rules(vendor: Vendor) -> Rules:
    own = functions_of(vendor.name, __name__)
    rules: Rules = own.rules(vendor) if own else counted(vendor)
    return rules
