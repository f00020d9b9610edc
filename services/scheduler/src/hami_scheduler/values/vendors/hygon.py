"""
Hygon DCU: ordinary.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/hygon/device.go
"""

from collections.abc import Iterable
from functools import partial

from hami_scheduler.values.vendor import VendorFrame
from hamicommon.config import DeviceConfig
from hamicommon.vendors import hygon


def frames(config: DeviceConfig) -> Iterable[VendorFrame]:
    """Yield Hygon under the names of *config*."""
    yield VendorFrame(hygon.vendor(config.hygon), partial(hygon.parse_request, config=config.hygon))
