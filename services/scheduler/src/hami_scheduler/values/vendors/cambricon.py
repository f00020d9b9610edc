"""
Cambricon MLU: devices are parts of the Node's compute; the first share of the Pod is written as a profile.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/cambricon/device.go
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hami_scheduler.values.inventory import node_capacity
from hami_scheduler.values.vendor import Allotment, VendorFrame
from hami_scheduler.values.vendor_parts.capacity import counted_devices
from hamicommon.model import Device
from hamicommon.vendor import Vendor
from hamicommon.vendors import cambricon

_REPLICAS = 100


def frame(vendor: Vendor) -> VendorFrame:
    """Return Cambricon as decisions see it."""
    return VendorFrame(
        vendor,
        offers=partial(_offers, config=vendor.config),
        annotate=_annotate,
    )


def _offers(node: Mapping[str, Any], config: cambricon.CambriconConfig) -> Sequence[Device]:
    """Return one device per 100 units of the Node's compute, each with an equal part of the memory."""
    cores = node_capacity(node, config.resource_core_name)
    memory = node_capacity(node, config.resource_memory_name)
    memory_mib = memory * cambricon.UNIT_MIB * 100 // cores if cores else 0
    device = Device("", count=_REPLICAS, memory_mib=memory_mib, core_percent=100, type=cambricon.KEY)
    return counted_devices(node, -(-cores // 100), "cambricon-mlu", device)


def _annotate(allotment: Allotment) -> dict[str, str]:
    first = next(iter(allotment.granted))[2][0]
    index = allotment.devices[first.uuid].index
    return {
        "CAMBRICON_DSMLU_ASSIGNED": "false",
        "CAMBRICON_DSMLU_PROFILE": f"{index}_{first.core_percent}_{first.memory_mib // cambricon.UNIT_MIB}",
    }
