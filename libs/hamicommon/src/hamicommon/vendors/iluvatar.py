"""
Iluvatar: names, keys and requests of each configured chip.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/iluvatar/device.go
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.config import IluvatarConfig
from hamicommon.model import Request
from hamicommon.vendors.amounts import exact_mib, request_of, saturated, whole_amount
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire import keys

UNIT_MIB = 256
"""MiB per unit of requested memory."""


def vendor(chip: IluvatarConfig) -> Vendor:
    """Return the names and keys of one chip; the inventory's key has its words in another order than Ascend's."""
    word = chip.common_word
    return Vendor(
        key=word,
        resource_names=named(chip.resource_count_name, chip.resource_memory_name, chip.resource_core_name),
        to_allocate_key=f"hami.io/{word}-devices-to-allocate",
        allocated_key=f"hami.io/{word}-devices-allocated",
        register_key=f"hami.io/node-{word}-register",
        handshake_key=f"hami.io/node-handshake-{word}",
        use_uuid_key=f"hami.io/use-{word}-uuid",
        nouse_uuid_key=f"hami.io/no-use-{word}-uuid",
        lock_key=keys.NODE_LOCK,
        memory_resource_name=chip.resource_memory_name,
        core_resource_name=chip.resource_core_name,
        memory_factor=UNIT_MIB,
    )


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
