"""
Hygon DCU: names, keys and requests.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/hygon/device.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import WHOLE_PERCENT, request_of, whole_amount, within
from hamicommon.vendors.description import Description, Section, Vendor, named, resource_name
from hamicommon.wire import keys
from hamicommon.wire.go.yaml_reader import key
from hamicommon.wire.quantity import INT32_MAX

KEY = "DCU"


@dataclass(frozen=True, slots=True)
class HygonConfig:
    """The `hygon` section."""

    resource_count_name: str = resource_name("resourceCountName", "hygon.com/dcunum")
    resource_memory_name: str = resource_name("resourceMemoryName", "hygon.com/dcumem")
    resource_core_name: str = resource_name("resourceCoreName", "hygon.com/dcucores")
    memory_factor: int = key("memoryFactor", 1, least=0, most=INT32_MAX)
    """MiB per unit of requested memory; 0 counts as 1."""


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
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def parse_request(resources: Mapping[str, Any], config: HygonConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of Hygon, None if nothing. Without cores it is whole devices.

    >>> parse_request({"limits": {"num": "2", "mem": "1000"}}, HygonConfig("num", "mem", "cores"))
    Request(vendor='DCU', count=2, memory_mib=1000, memory_percent=None, core_percent=100, profile_size=0)
    """
    memory = whole_amount(resources, config.resource_memory_name) or 0
    return request_of(
        KEY,
        within(whole_amount(resources, config.resource_count_name)),
        within(memory * max(1, config.memory_factor)),
        within(whole_amount(resources, config.resource_core_name), absent=WHOLE_PERCENT),
    )


SECTION: Final = Section("hygon", HygonConfig())
DESCRIPTION: Final = Description("Hygon", SECTION, lambda config: (vendor(config),), order=4)
