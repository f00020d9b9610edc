"""
Ways of sharing devices that more than one vendor has.

Neighbours: `fit` applies them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.fit import Attempt, Sharing
from hami_scheduler.values.inventory import registered
from hami_scheduler.values.reasons import Reason
from hamicommon.held import Taken
from hamicommon.model import Device

COUNTED = Sharing(amounts=lambda _use, _attempt: Taken(1), counts_memory=False, counts_cores=False)
"""A share takes one replica."""


def offer_whole(node: Mapping[str, Any], key: str) -> Sequence[Device]:
    """Return the devices that annotation *key* of *node* lists, each with all of its compute."""
    return tuple(replace(device, core_percent=100) for device in registered(node, key))


def same_device(use: DeviceUse, attempt: Attempt) -> Reason | None:
    """Return a refusal if earlier containers of the Pod have another device."""
    return Reason.OTHER_DEVICE if attempt.earlier - {use.device.id} else None
