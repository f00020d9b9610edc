"""
Cambricon MLU: names and keys. The inventory is the Node's capacity, the lock Cambricon's own.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/cambricon/device.go
"""

from hamicommon.config import CambriconConfig
from hamicommon.vendors.description import Vendor, named

KEY = "MLU"


def vendor(config: CambriconConfig) -> Vendor:
    """Return Cambricon's names and keys."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name, config.resource_memory_name, config.resource_core_name),
        to_allocate_key="hami.io/cambricon-mlu-devices-to-allocate",
        allocated_key="hami.io/cambricon-mlu-devices-allocated",
        use_uuid_key="cambricon.com/use-gpuuuid",
        nouse_uuid_key="cambricon.com/nouse-gpuuuid",
        lock_key="cambricon.com/dsmlu.lock",
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
    )
