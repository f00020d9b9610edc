"""
Hygon DCU: names and keys.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/hygon/device.go
"""

from hamicommon.config import HygonConfig
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire import keys

KEY = "DCU"


def vendor(config: HygonConfig) -> Vendor:
    """Return Hygon's names and keys."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name, config.resource_memory_name, config.resource_core_name),
        to_allocate_key="hami.io/dcu-devices-to-allocate",
        allocated_key="hami.io/dcu-devices-allocated",
        register_key="hami.io/node-dcu-register",
        handshake_key="hami.io/node-handshake-dcu",
        use_uuid_key="hygon.com/use-gpuuuid",
        nouse_uuid_key="hygon.com/nouse-gpuuuid",
        use_type_key="hygon.com/use-dcutype",
        nouse_type_key="hygon.com/nouse-dcutype",
        lock_key=keys.NODE_LOCK,
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
        memory_factor=max(1, config.memory_factor),
    )
