"""
Cambricon MLU: names, keys and requests. Devices are counted by the Node's capacity. The lock is Cambricon's.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/cambricon/device.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import WHOLE_PERCENT, exact_mib, request_of, saturated, whole_amount
from hamicommon.vendors.description import Description, Section, Vendor, named, resource_name

KEY = "MLU"
UNIT_MIB = 256
"""MiB per unit of memory, in requests and in a Node's capacity."""


@dataclass(frozen=True, slots=True)
class CambriconConfig:
    """The `cambricon` section."""

    resource_count_name: str = resource_name("resourceCountName", "cambricon.com/vmlu")
    resource_memory_name: str = resource_name("resourceMemoryName", "cambricon.com/mlu.smlu.vmemory")
    resource_core_name: str = resource_name("resourceCoreName", "cambricon.com/mlu.smlu.vcore")


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
        lock_seconds=120,
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
        memory_factor=UNIT_MIB,
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def parse_request(resources: Mapping[str, Any], config: CambriconConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of Cambricon, None if nothing. Without cores it is whole
    devices.

    >>> config = CambriconConfig("vmlu", "vmemory", "vcore")
    >>> parse_request({"limits": {"vmlu": "1", "vmemory": "20", "vcore": "30"}}, config)
    Request(vendor='MLU', count=1, memory_mib=5120, memory_percent=None, core_percent=30, profile_size=0)
    """
    return request_of(
        KEY,
        saturated(whole_amount(resources, config.resource_count_name)),
        exact_mib(resources, config.resource_memory_name, UNIT_MIB),
        saturated(whole_amount(resources, config.resource_core_name), absent=WHOLE_PERCENT),
    )


SECTION: Final = Section("cambricon", CambriconConfig())
DESCRIPTION: Final = Description("Cambricon", SECTION, lambda config: (vendor(config),), order=3)
