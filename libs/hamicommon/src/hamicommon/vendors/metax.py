"""
MetaX: names, keys and requests of whole devices and of shared ones, which are two vendors to everybody else.

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/metax
"""

from collections.abc import Mapping
from typing import Any

from hamicommon import quantity
from hamicommon.config import MetaxConfig
from hamicommon.model import Request
from hamicommon.vendors.amounts import WHOLE_PERCENT, limit_of, request_of, saturated, whole_amount, within
from hamicommon.vendors.description import Vendor, named
from hamicommon.wire import keys

GPU_KEY = "Metax-GPU"
SGPU_KEY = "Metax-SGPU"
_MIB = 1024 * 1024
_MIB_PER_GIB = 1024


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
        memory_factor=_MIB_PER_GIB,
    )


def parse_gpu_request(resources: Mapping[str, Any], config: MetaxConfig) -> Request | None:
    """
    Return how many whole devices a container with these `resources` asks for, None if none.

    >>> parse_gpu_request({"limits": {"gpu": "2"}}, MetaxConfig(resource_count_name="gpu"))
    Request(vendor='Metax-GPU', count=2, memory_mib=0, memory_percent=100, core_percent=100, profile_size=0)
    """
    return request_of(GPU_KEY, saturated(whole_amount(resources, config.resource_count_name)), 0, WHOLE_PERCENT)


def parse_sgpu_request(resources: Mapping[str, Any], config: MetaxConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of shared devices, None if nothing; only limits count.

    Memory without a unit is in GiB, without cores a device is asked for whole.

    >>> config = MetaxConfig("", "sgpu", "vmemory", "vcore")
    >>> [parse_sgpu_request({"limits": {"sgpu": "1", "vmemory": text}}, config).memory_mib for text in ("4", "2048Mi")]
    [4096, 2048]
    """
    limits = {"limits": resources.get("limits")}
    return request_of(
        SGPU_KEY,
        within(whole_amount(limits, config.resource_vcount_name)),
        _sgpu_mib(limit_of(resources, config.resource_vmemory_name)),
        within(whole_amount(limits, config.resource_vcore_name), absent=WHOLE_PERCENT),
    )


def _sgpu_mib(text: Any | None) -> int | None:
    """Return the MiB of *text*, 0 where it says none or is no whole number, None where it voids the request."""
    amount = None if text is None else quantity.whole(text)
    if amount is None:
        return 0
    has_unit = any(character.isalpha() for character in str(text))
    return within(amount // _MIB if has_unit else amount * _MIB_PER_GIB)
