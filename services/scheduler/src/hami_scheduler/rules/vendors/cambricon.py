"""
Cambricon MLU: devices are parts of the Node's compute; the first share of the Pod is written as a profile.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/cambricon/device.go
"""

from hami_scheduler.rules.vendor_parts import devices_of_cores
from hami_scheduler.values.vendor import Allotment, VendorRules
from hamicommon.vendors import cambricon
from hamicommon.vendors.description import Vendor


def rules(vendor: Vendor) -> VendorRules:
    """Return Cambricon as decisions see it."""
    resources = (vendor.config.resource_core_name, vendor.config.resource_memory_name)
    return VendorRules(
        vendor,
        read_devices=lambda node: devices_of_cores(
            node, resources, cambricon.UNIT_MIB, 100, "cambricon-mlu", cambricon.KEY
        ),
        annotate=_annotate,
        kubelet_resources=resources,
    )


def _annotate(allotment: Allotment) -> dict[str, str]:
    first = next(iter(allotment.granted))[2][0]
    index = allotment.devices[first.uuid].index
    return {
        "CAMBRICON_DSMLU_ASSIGNED": "false",
        "CAMBRICON_DSMLU_PROFILE": f"{index}_{first.core_percent}_{first.memory_mib // cambricon.UNIT_MIB}",
    }
