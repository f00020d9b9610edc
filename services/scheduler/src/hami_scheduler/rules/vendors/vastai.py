"""
Vastai: devices are counted; dies are taken from as few cards as possible.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/vastai/device.go
"""

from collections import Counter
from dataclasses import replace
from functools import partial

from hami_scheduler.rules.vendor_parts import COUNTED, largest_groups_first, read_whole_devices
from hami_scheduler.values.attempt import Attempt, Chooser, Options, Refusals
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.vendor import NodeView, VendorRules
from hamicommon.model import Device
from hamicommon.vendors.description import Vendor


def rules(vendor: Vendor) -> VendorRules:
    """Return Vastai as decisions see it."""
    return VendorRules(
        vendor,
        fit=replace(COUNTED, check_last=_refusal_of_card, choose=_chooser),
        read_devices=partial(read_whole_devices, key=vendor.register_key),
        rate=_rate,
        rate_at_best=lambda prospect: 0 if prospect.is_spread else len(prospect.counts),
    )


def _card(device: Device) -> str | None:
    """Return the card of a die, None if it names none."""
    found = device.custom.get("AIC")
    return found if isinstance(found, str) else None


def _is_die(device: Device) -> bool:
    return bool(device.custom.get("DeviceStrategy") == "die")


def _refusal_of_card(use: DeviceUse, attempt: Attempt) -> Reason | None:
    """Return a refusal, under the mutex policy, if another die of the card is in use."""
    if not attempt.constraints.is_mutex or not _is_die(attempt.candidates[0].device) or _card(use.device) is None:
        return None
    used = {_card(other.device) for other in attempt.candidates if other.replicas}
    return Reason.EXCLUSIVE if _card(use.device) in used else None


def _chooser(attempt: Attempt) -> Chooser | None:
    is_die = not attempt.candidates or _is_die(attempt.candidates[0].device)
    return _fewest_cards if is_die and attempt.request.count > 1 else None


def _fewest_cards(attempt: Attempt, options: Options, _refusals: Refusals) -> Options | None:
    return largest_groups_first(options, attempt.request.count, lambda option: _card(option.use.device))


def _rate(view: NodeView) -> float:
    """Return the share of dies on one card, summed over containers; 0 if the devices are not dies."""
    rating = 0.0
    for container in view.shares:
        devices = [view.devices[share.uuid] for share in container]
        cards = [_card(device) for device in devices]
        if any(not _is_die(device) or "AIC" not in device.custom for device in devices):
            return 0
        named = Counter(card for card in cards if card is not None)
        if named:
            rating += max(named.values()) / named.total()
    return rating
