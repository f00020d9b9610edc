"""
Enflame: names, keys and requests of whole devices (GCU) and of devices cut by profile (DRS), two vendors to all others.

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/enflame
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.config import EnflameConfig
from hamicommon.model import Request
from hamicommon.quantity import INT32_MAX
from hamicommon.vendors.amounts import request_of, rounded_amount, saturated, whole_amount
from hamicommon.vendors.description import Vendor, named

GCU_KEY = "GCU"
DRS_KEY = "Enflame"
GCU_MEMORY = 100
"""What a whole device counts as, in place of MiB: nobody says how much it has."""


def gcu_vendor(config: EnflameConfig) -> Vendor:
    """Return the names and keys of whole devices: counted from the Node's capacity, no lists, no lock."""
    return Vendor(
        key=GCU_KEY,
        resource_names=named(config.resource_gcu_name),
        to_allocate_key="hami.io/enflame-gcu-devices-to-allocate",
        allocated_key="hami.io/enflame-gcu-devices-allocated",
    )


def drs_vendor(config: EnflameConfig) -> Vendor:
    """Return the names and keys of devices cut by profile."""
    return Vendor(
        key=DRS_KEY,
        resource_names=named(_drs_name(config), config.resource_memory_name, config.resource_core_name),
        to_allocate_key="",
        allocated_key="hami.io/enflame-vgpu-devices-allocated",
        register_key="enflame.com/gcu-drs-capacity",
        use_uuid_key="enflame.com/use-gpuuuid",
        nouse_uuid_key="enflame.com/nouse-gpuuuid",
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
    )


def parse_gcu_request(resources: Mapping[str, Any], config: EnflameConfig) -> Request | None:
    """
    Return how many whole devices a container with these `resources` asks for, None if none.

    >>> parse_gcu_request({"limits": {"gcu": "2"}}, EnflameConfig(resource_gcu_name="gcu"))
    Request(vendor='GCU', count=2, memory_mib=100, memory_percent=None, core_percent=100, profile_size=0)
    """
    return request_of(GCU_KEY, saturated(whole_amount(resources, config.resource_gcu_name)), GCU_MEMORY, 100)


def parse_drs_request(resources: Mapping[str, Any], config: EnflameConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of devices cut by profile, None if nothing.

    A number of parts names the profile (`profile_size`); else memory and cores do, and the memory is MiB or GiB, which
    only the profiles of a Node tell (`memory_mib` holds the number as it stands, 0 for any).

    >>> config = EnflameConfig("", "drs", "memory", "core")
    >>> parse_drs_request({"limits": {"drs": "3"}}, config)
    Request(vendor='Enflame', count=1, memory_mib=0, memory_percent=None, core_percent=0, profile_size=3)
    >>> parse_drs_request({"limits": {"memory": "16", "core": "50"}}, config)
    Request(vendor='Enflame', count=1, memory_mib=16, memory_percent=None, core_percent=50, profile_size=0)
    """
    size = whole_amount(resources, _drs_name(config))
    if size is not None and size > 0:
        return Request(DRS_KEY, 1, 0, None, 0, size) if size <= INT32_MAX else None
    memory = rounded_amount(resources, config.resource_memory_name)
    cores = rounded_amount(resources, config.resource_core_name)
    if (memory is None and cores is None) or max(memory or 0, cores or 0) > INT32_MAX:
        return None
    return Request(DRS_KEY, 1, max(memory or 0, 0), None, max(cores or 0, 0))


def _drs_name(config: EnflameConfig) -> str:
    return config.resource_drs_name or config.legacy_resource_vgcu_name
