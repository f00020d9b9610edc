"""
Biren: devices are counted, nothing else of them is.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/biren/device.go
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hami_scheduler.values.device_use import Taken
from hami_scheduler.values.fit import Sharing
from hami_scheduler.values.inventory import registered
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.config import DeviceConfig
from hamicommon.model import Device
from hamicommon.vendors import biren

COUNTED = Sharing(amounts=lambda _use, _attempt: Taken(1), counts_memory=False, counts_cores=False)
"""A share takes a replica and nothing else."""


def frames(config: DeviceConfig) -> Iterable[VendorFrame]:
    """Yield Biren under the names of *config*."""
    vendor = biren.vendor(config.biren)
    yield VendorFrame(
        vendor,
        partial(biren.parse_request, config=config.biren),
        sharing=COUNTED,
        offers=partial(offer_whole, key=vendor.register_key),
    )


def offer_whole(node: Mapping[str, Any], key: str) -> Sequence[Device]:
    """Return what annotation *key* of *node* lists, each device with all of its compute, which nobody registers."""
    return tuple(replace(device, core_percent=100) for device in registered(node, key))
