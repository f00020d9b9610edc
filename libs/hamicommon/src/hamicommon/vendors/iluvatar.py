"""
Iluvatar: names and keys of each configured chip.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/iluvatar/device.go
"""

from hamicommon.config import IluvatarConfig
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire import keys


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
    )
