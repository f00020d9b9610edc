"""
Moore Threads: names and keys. The inventory is the Node's capacity; there is no lock.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/mthreads/device.go
"""

from hamicommon.config import MthreadsConfig
from hamicommon.vendors.description import Vendor, named

KEY = "Mthreads"


def vendor(config: MthreadsConfig) -> Vendor:
    """Return Moore Threads' names and keys; HAMi registers the to-allocate key and never writes it."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name, config.resource_memory_name, config.resource_core_name),
        to_allocate_key="hami.io/mthreads-vgpu-devices-to-allocate",
        allocated_key="hami.io/mthreads-vgpu-devices-allocated",
        use_uuid_key="mthreads.ai/use-gpuuuid",
        nouse_uuid_key="mthreads.ai/nouse-gpuuuid",
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
    )
