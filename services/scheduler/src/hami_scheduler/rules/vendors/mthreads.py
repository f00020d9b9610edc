"""
Moore Threads: devices are parts of the Node's compute. All containers of a Pod share one device.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/mthreads/device.go
"""

from hami_scheduler.rules.vendor_parts import devices_of_cores, same_device
from hami_scheduler.values.vendor import Allotment, FitRules, VendorRules
from hamicommon.vendors import mthreads
from hamicommon.vendors.description import Vendor


def rules(vendor: Vendor) -> VendorRules:
    """Return Moore Threads as decisions see it."""
    resources = (vendor.config.resource_core_name, vendor.config.resource_memory_name)
    return VendorRules(
        vendor,
        fit=FitRules(check_last=same_device),
        read_devices=lambda node: devices_of_cores(
            node, resources, mthreads.UNIT_MIB, mthreads.CORES_PER_DEVICE, "mthreads", mthreads.KEY
        ),
        annotate=_annotate,
        core_unit="cores",
        kubelet_resources=resources,
    )


def _annotate(allotment: Allotment) -> dict[str, str]:
    _, _, shares = allotment.granted[-1]
    return {
        "mthreads.com/gpu-index": ",".join(str(allotment.devices[share.uuid].index) for share in shares),
        "mthreads.com/predicate-node": allotment.node,
        "mthreads.com/predicate-time": str(allotment.unix_nanoseconds),
    }
