"""
AMD: names, keys and requests.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/amd/device.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import WHOLE_PERCENT, limit_of, request_of, whole_amount, within
from hamicommon.vendors.description import Description, Section, Vendor, amount, named, resource_name
from hamicommon.wire import keys
from hamicommon.wire.quantity import whole

KEY = "AMD"


@dataclass(frozen=True, slots=True)
class AmdConfig:
    """The `amd` section."""

    resource_count_name: str = resource_name("resourceCountName", "amd.com/gpu")
    resource_memory_name: str = resource_name("resourceMemoryName", "amd.com/gpumem")
    resource_core_name: str = resource_name("resourceCoreName", "amd.com/gpucores")


def vendor(config: AmdConfig) -> Vendor:
    """Return AMD's names and keys."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name, config.resource_memory_name, config.resource_core_name),
        to_allocate_key="hami.io/amd-devices-to-allocate",
        allocated_key="hami.io/amd-devices-allocated",
        register_key="hami.io/node-amd-register",
        use_uuid_key="amd.com/use-gpu-uuid",
        nouse_uuid_key="amd.com/nouse-gpu-uuid",
        use_type_key="amd.com/use-gputype",
        nouse_type_key="amd.com/nouse-gputype",
        lock_key=keys.NODE_LOCK,
        memory_resource_name=config.resource_memory_name,
        core_resource_name=config.resource_core_name,
        grants_percent=False,
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def parse_request(resources: Mapping[str, Any], config: AmdConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of AMD, None if nothing. Count and memory must be limits.

    Cores are a percentage of each device's compute units; without cores, all of them.

    >>> config = AmdConfig("gpu", "gpumem", "gpucores")
    >>> parse_request({"limits": {"gpu": "1", "gpumem": "1000", "gpucores": "50"}}, config)
    Request(vendor='AMD', count=1, memory_mib=1000, memory_percent=None, core_percent=50, profile_size=0)
    """
    limits = {"limits": resources.get("limits")}
    memory = limit_of(resources, config.resource_memory_name)
    memory_mib = 0 if memory is None else whole(memory)
    cores: int | None = WHOLE_PERCENT
    if amount(resources, config.resource_core_name) is not None:
        cores = whole_amount(resources, config.resource_core_name)
    if memory_mib is None or cores is None or not 1 <= cores <= WHOLE_PERCENT:
        return None
    return request_of(KEY, within(whole_amount(limits, config.resource_count_name)), within(memory_mib), cores)


SECTION: Final = Section("amd", AmdConfig())
DESCRIPTION: Final = Description("AMD", SECTION, lambda config: (vendor(config),), order=11)
