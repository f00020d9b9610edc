"""
Moore Threads: names, keys and requests. Devices are counted by the Node's capacity. There is no lock.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/mthreads/device.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import exact_mib, request_of, saturated, whole_amount, within
from hamicommon.vendors.description import Description, Section, Vendor, named, resource_name

KEY = "Mthreads"
UNIT_MIB = 512
"""MiB per unit of memory, in requests and in a Node's capacity."""
CORES_PER_DEVICE = 16


@dataclass(frozen=True, slots=True)
class MthreadsConfig:
    """The `mthreads` section."""

    resource_count_name: str = resource_name("resourceCountName", "mthreads.com/vgpu")
    resource_memory_name: str = resource_name("resourceMemoryName", "mthreads.com/sgpu-memory")
    resource_core_name: str = resource_name("resourceCoreName", "mthreads.com/sgpu-core")


def vendor(config: MthreadsConfig) -> Vendor:
    """Return Moore Threads' names and keys."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name, config.resource_memory_name, config.resource_core_name),
        to_allocate_key="",
        allocated_key="hami.io/mthreads-vgpu-devices-allocated",
        use_uuid_key="mthreads.ai/use-gpuuuid",
        nouse_uuid_key="mthreads.ai/nouse-gpuuuid",
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
        memory_factor=UNIT_MIB,
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def parse_request(resources: Mapping[str, Any], config: MthreadsConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of Moore Threads, None if nothing.

    Memory and cores are the sum over all devices.

    >>> config = MthreadsConfig("vgpu", "memory", "core")
    >>> parse_request({"limits": {"vgpu": "2", "memory": "192", "core": "32"}}, config)
    Request(vendor='Mthreads', count=2, memory_mib=49152, memory_percent=None, core_percent=16, profile_size=0)
    """
    count = within(whole_amount(resources, config.resource_count_name))
    memory_mib = exact_mib(resources, config.resource_memory_name, UNIT_MIB)
    if not count or memory_mib is None:
        return None
    cores = saturated(whole_amount(resources, config.resource_core_name))
    return request_of(KEY, count, memory_mib // count, cores // count)


SECTION: Final = Section("mthreads", MthreadsConfig())
DESCRIPTION: Final = Description("Moore Threads", SECTION, lambda config: (vendor(config),), order=6)
