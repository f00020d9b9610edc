"""
Kunlun: names, keys and requests of two vendors, whole devices and shared ones (XPU).

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/kunlun
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from hamicommon.model import Request
from hamicommon.vendors.amounts import WHOLE_PERCENT, request_of, saturated, whole_amount
from hamicommon.vendors.description import Description, Section, Vendor, named, resource_name
from hamicommon.wire import keys

KEY = "kunlun"
XPU_KEY = "XPU"
DEVICE_MIB = 98304
SHARE_SIZES_MIB = (24576, 49152, DEVICE_MIB)
"""The sizes of shares. All shares of a device have the same size."""
_USE_KEY, _NOUSE_KEY = "baidu.com/use-gpuuuid", "baidu.com/nouse-gpuuuid"
_USE_XPU_KEY, _NOUSE_XPU_KEY = "hami.io/use-xpu-uuid", "hami.io/no-use-xpu-uuid"


@dataclass(frozen=True, slots=True)
class KunlunConfig:
    """The `kunlun` section: whole devices (count) and shared ones (vcount, vmemory)."""

    resource_count_name: str = resource_name("resourceCountName", "kunlunxin.com/xpu")
    resource_vcount_name: str = resource_name("resourceVCountName", "kunlunxin.com/vxpu")
    resource_vmemory_name: str = resource_name("resourceVMemoryName", "kunlunxin.com/vxpu-memory")


def vendor(config: KunlunConfig) -> Vendor:
    """Return the names and keys of whole devices, counted by the Node's capacity, without lock."""
    return Vendor(
        key=KEY,
        resource_names=named(config.resource_count_name),
        to_allocate_key="",
        allocated_key="hami.io/kunlun-allocated",
        use_uuid_key=_USE_KEY,
        nouse_uuid_key=_NOUSE_KEY,
        also_use_uuid_key=_USE_XPU_KEY,
        also_nouse_uuid_key=_NOUSE_XPU_KEY,
        parse_request=partial(parse_request, config=config),
        config=config,
    )


def xpu_vendor(config: KunlunConfig) -> Vendor:
    """Return the names and keys of shared devices."""
    return Vendor(
        key=XPU_KEY,
        resource_names=named(config.resource_vcount_name, config.resource_vmemory_name),
        to_allocate_key="hami.io/xpu-devices-to-allocate",
        allocated_key="hami.io/xpu-devices-allocated",
        register_key="hami.io/node-register-xpu",
        handshake_key="hami.io/node-handshake-xpu",
        use_uuid_key=_USE_XPU_KEY,
        nouse_uuid_key=_NOUSE_XPU_KEY,
        also_use_uuid_key=_USE_KEY,
        also_nouse_uuid_key=_NOUSE_KEY,
        lock_key=keys.NODE_LOCK,
        memory_resource_name=config.resource_vmemory_name,
        parse_request=partial(parse_xpu_request, config=config),
        config=config,
    )


def parse_request(resources: Mapping[str, Any], config: KunlunConfig) -> Request | None:
    """
    Return how many whole devices a container with these `resources` asks for, None if none.

    >>> parse_request({"limits": {"xpu": "4"}}, KunlunConfig("xpu"))
    Request(vendor='kunlun', count=4, memory_mib=0, memory_percent=100, core_percent=0, profile_size=0)
    """
    return request_of(KEY, saturated(whole_amount(resources, config.resource_count_name)), 0, 0)


def parse_xpu_request(resources: Mapping[str, Any], config: KunlunConfig) -> Request | None:
    """
    Return what a container with these `resources` asks of shared devices, None if nothing.

    Memory is rounded up to the next size. Cores follow from it.

    >>> config = KunlunConfig("", "vxpu", "memory")
    >>> parse_xpu_request({"limits": {"vxpu": "1", "memory": "30000"}}, config)
    Request(vendor='XPU', count=1, memory_mib=49152, memory_percent=None, core_percent=50, profile_size=0)
    """
    memory = whole_amount(resources, config.resource_vmemory_name)
    memory_mib = DEVICE_MIB if memory is None else next((s for s in SHARE_SIZES_MIB if memory <= s), DEVICE_MIB)
    count = saturated(whole_amount(resources, config.resource_vcount_name))
    return request_of(XPU_KEY, count, memory_mib, memory_mib * WHOLE_PERCENT // DEVICE_MIB)


SECTION: Final = Section("kunlun", KunlunConfig())
DESCRIPTION: Final = Description("Kunlun", SECTION, lambda config: (vendor(config), xpu_vendor(config)), order=9)
