"""
The admission rules of vendors that need more than their description: one module each, named as in hamicommon.

A module has a function `rules(vendor)`. Without a module, a vendor's devices are counted and nothing is changed.
A module may import `rules`, `amounts` and `pod`. Must never import another vendor's module.
"""

from hami_webhook.decide.rules import Rules, counted
from hamicommon.config.device_config import DeviceConfig
from hamicommon.vendors import functions_of
from hamicommon.vendors.description import Vendor


def all_rules(config: DeviceConfig) -> tuple[Rules, ...]:
    """Return the rules of every vendor in the device config; a vendor with several chips has one entry for each."""
    return tuple(map(_rules, config.vendors()))


def _rules(vendor: Vendor) -> Rules:
    own = functions_of(vendor.name, __name__)
    rules: Rules = own.rules(vendor) if own else counted(vendor)
    return rules
