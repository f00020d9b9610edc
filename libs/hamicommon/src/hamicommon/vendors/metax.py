"""
MetaX: names and keys of whole devices and of shared ones, which are two vendors to everybody else.

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/metax
"""

from hamicommon.config import MetaxConfig
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire import keys

GPU_KEY = "Metax-GPU"
SGPU_KEY = "Metax-SGPU"


def gpu_vendor(config: MetaxConfig) -> Vendor:
    """Return the names and keys of whole devices: counted from the Node's capacity, no lists, no lock."""
    return Vendor(
        key=GPU_KEY,
        resource_names=named(config.resource_count_name),
        to_allocate_key="hami.io/metax-gpu-devices-to-allocate",
        allocated_key="hami.io/metax-gpu-devices-allocated",
    )


def sgpu_vendor(config: MetaxConfig) -> Vendor:
    """Return the names and keys of shared devices."""
    return Vendor(
        key=SGPU_KEY,
        resource_names=named(config.resource_vcount_name, config.resource_vmemory_name, config.resource_vcore_name),
        to_allocate_key="hami.io/metax-sgpu-devices-to-allocate",
        allocated_key="hami.io/metax-sgpu-devices-allocated",
        register_key="metax-tech.com/node-gpu-devices",
        use_uuid_key="metax-tech.com/use-gpuuuid",
        nouse_uuid_key="metax-tech.com/nouse-gpuuuid",
        lock_key=keys.NODE_LOCK,
        memory_resource_name=config.resource_vmemory_name,
        core_resource_name=config.resource_vcore_name,
    )
