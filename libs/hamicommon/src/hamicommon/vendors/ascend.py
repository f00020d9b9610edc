"""
Ascend: names and keys of each configured chip.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/ascend/device.go
"""

from hamicommon.config import AscendChipConfig
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire import keys


def vendor(chip: AscendChipConfig) -> Vendor:
    """Return the names and keys of one chip; its common word is part of every key."""
    word = chip.common_word
    return Vendor(
        key=word,
        resource_names=named(chip.resource_count_name, chip.resource_memory_name, chip.resource_core_name),
        to_allocate_key=f"hami.io/{word}-devices-to-allocate",
        allocated_key=f"hami.io/{word}-devices-allocated",
        register_key=f"hami.io/node-register-{word}",
        handshake_key=f"hami.io/node-handshake-{word}",
        use_uuid_key=f"hami.io/use-{word}-uuid",
        nouse_uuid_key=f"hami.io/no-use-{word}-uuid",
        lock_key=keys.NODE_LOCK,
        memory_resource_name=chip.resource_memory_name,
        core_resource_name=chip.resource_core_name,
        memory_factor=max(1, chip.memory_factor),
    )
