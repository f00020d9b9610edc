"""
Biren: names, keys and requests. Only devices are counted.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/biren/device.go
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import request_of, saturated, whole_amount
from hamicommon.vendors.description import Description, Section, Vendor, named, resource_name
from hamicommon.wire import keys

KEY = "Biren"


@dataclass(frozen=True, slots=True)
class BirenConfig:
    """The `biren` section."""

    resource_count_name: str = resource_name("resourceCountName", "birentech.com/gpu")


def vendor(config: BirenConfig) -> Vendor:
    """Return Biren's names and keys."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name),
        to_allocate_key="hami.io/Biren-devices-to-allocate",
        allocated_key="hami.io/Biren-devices-allocated",
        register_key="hami.io/node-biren-register",
        handshake_key="hami.io/node-handshake-biren",
        use_uuid_key="birentech.com/use-gpuuuid",
        nouse_uuid_key="birentech.com/nouse-gpuuuid",
        lock_key=keys.NODE_LOCK,
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def parse_request(resources: Mapping[str, Any], config: BirenConfig) -> Request | None:
    """
    Return how many devices a container with these `resources` asks for, None if none.

    >>> parse_request({"limits": {"device": "2"}}, BirenConfig("device"))
    Request(vendor='Biren', count=2, memory_mib=0, memory_percent=100, core_percent=0, profile_size=0)
    """
    return request_of(KEY, saturated(whole_amount(resources, config.resource_count_name)), 0, 0)


SECTION: Final = Section("biren", BirenConfig())
DESCRIPTION: Final = Description("Biren", SECTION, lambda config: (vendor(config),), order=13)
