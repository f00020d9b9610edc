"""
Iluvatar: names, keys and requests of each configured chip.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/iluvatar/device.go
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.config import IluvatarConfig
from hamicommon.model import Request
from hamicommon.vendors.amounts import exact_mib, request_of, saturated, whole_amount
from hamicommon.vendors.description import Vendor, chip_vendor

UNIT_MIB = 256
"""MiB per unit of requested memory."""


def vendor(chip: IluvatarConfig) -> Vendor:
    """Return the names and keys of one chip; the inventory's key has its words in another order than Ascend's."""
    return chip_vendor(chip, f"hami.io/node-{chip.common_word}-register", UNIT_MIB)


def parse_request(resources: Mapping[str, Any], chip: IluvatarConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of *chip*, None if nothing; the memory is each device's.

    >>> chip = IluvatarConfig("BI-V150", "BI-V150", "vgpu", "vMem", "vCore")
    >>> parse_request({"limits": {"vgpu": "2", "vMem": "16"}}, chip)
    Request(vendor='BI-V150', count=2, memory_mib=4096, memory_percent=None, core_percent=0, profile_size=0)
    """
    return request_of(
        chip.common_word,
        saturated(whole_amount(resources, chip.resource_count_name)),
        exact_mib(resources, chip.resource_memory_name, UNIT_MIB),
        saturated(whole_amount(resources, chip.resource_core_name)),
    )
