"""
Iluvatar: ordinary, one vendor a chip.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/iluvatar/device.go
"""

from collections.abc import Iterable
from functools import partial

from hami_scheduler.values.vendor import VendorFrame
from hamicommon.config import DeviceConfig
from hamicommon.vendors import iluvatar


def frames(config: DeviceConfig) -> Iterable[VendorFrame]:
    """Yield every chip of *config*."""
    for chip in config.iluvatars:
        yield VendorFrame(iluvatar.vendor(chip), partial(iluvatar.parse_request, chip=chip))
