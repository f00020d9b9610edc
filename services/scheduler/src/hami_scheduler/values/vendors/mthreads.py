"""
Moore Threads: devices are parts of the Node's compute. All containers of a Pod share one device.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/mthreads/device.go
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hami_scheduler.values.fit import Sharing
from hami_scheduler.values.inventory import node_capacity
from hami_scheduler.values.vendor import Allotment, VendorFrame
from hami_scheduler.values.vendor_parts.capacity import counted_devices
from hami_scheduler.values.vendor_parts.sharing import same_device
from hamicommon.model import Device
from hamicommon.vendor import Vendor
from hamicommon.vendors import mthreads

_REPLICAS = 100


def frame(vendor: Vendor) -> VendorFrame:
    """Return Moore Threads as decisions see it."""
    return VendorFrame(
        vendor,
        sharing=Sharing(check_last=same_device),
        offers=partial(_offers, config=vendor.config),
        annotate=_annotate,
        core_unit="cores",
    )


def _offers(node: Mapping[str, Any], config: mthreads.MthreadsConfig) -> Sequence[Device]:
    cores = node_capacity(node, config.resource_core_name)
    memory = node_capacity(node, config.resource_memory_name)
    memory_mib = memory * mthreads.UNIT_MIB * mthreads.CORES_PER_DEVICE // cores if cores else 0
    per_device = mthreads.CORES_PER_DEVICE
    device = Device("", count=_REPLICAS, memory_mib=memory_mib, core_percent=per_device, type=mthreads.KEY)
    return counted_devices(node, -(-cores // per_device), "mthreads", device)


def _annotate(allotment: Allotment) -> dict[str, str]:
    _, _, shares = allotment.granted[-1]
    return {
        "mthreads.com/gpu-index": ",".join(str(allotment.devices[share.uuid].index) for share in shares),
        "mthreads.com/predicate-node": allotment.node,
        "mthreads.com/predicate-time": str(allotment.unix_nanoseconds),
    }
