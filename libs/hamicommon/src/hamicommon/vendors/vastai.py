"""
Vastai: names, keys and requests, which count devices and nothing else.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/vastai/device.go
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.config import CountConfig
from hamicommon.model import Request
from hamicommon.vendors.amounts import request_of, saturated, whole_amount
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire import keys

KEY = "Vastai"


def vendor(config: CountConfig) -> Vendor:
    """Return Vastai's names and keys."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name),
        to_allocate_key="hami.io/Vastai-devices-to-allocate",
        allocated_key="hami.io/Vastai-devices-allocated",
        register_key="hami.io/node-va-register",
        handshake_key="hami.io/node-handshake-va",
        use_uuid_key="vastaitech.com/use-gpuuuid",
        nouse_uuid_key="vastaitech.com/nouse-gpuuuid",
        lock_key=keys.NODE_LOCK,
    )


def parse_request(resources: Mapping[str, Any], config: CountConfig) -> Request | None:
    """
    Return how many devices a container with these `resources` asks for, None if none.

    >>> parse_request({"limits": {"device": "2"}}, CountConfig("device"))
    Request(vendor='Vastai', count=2, memory_mib=0, memory_percent=100, core_percent=0, profile_size=0)
    """
    return request_of(KEY, saturated(whole_amount(resources, config.resource_count_name)), 0, 0)
