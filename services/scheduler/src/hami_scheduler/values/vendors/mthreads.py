"""
Moore Threads: devices are parts of the Node's compute; all containers of a Pod share one.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/mthreads/device.go
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.fit import Attempt, Sharing
from hami_scheduler.values.inventory import node_capacity
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.vendor import Allotment, VendorFrame
from hami_scheduler.values.vendors.capacity import counted_devices
from hamicommon.config import DeviceConfig, MthreadsConfig
from hamicommon.model import Device
from hamicommon.vendors import mthreads

_REPLICAS = 100


def frames(config: DeviceConfig) -> Iterable[VendorFrame]:
    """Yield Moore Threads under the names of *config*."""
    yield VendorFrame(
        mthreads.vendor(config.mthreads),
        partial(mthreads.parse_request, config=config.mthreads),
        sharing=Sharing(check_last=same_device),
        offers=partial(_offers, config=config.mthreads),
        annotate=_annotate,
        core_unit="cores",
    )


def same_device(use: DeviceUse, attempt: Attempt) -> Reason | None:
    """Return the refusal of a device that an earlier container of the Pod does not have."""
    return Reason.OTHER_DEVICE if attempt.earlier - {use.device.id} else None


def _offers(node: Mapping[str, Any], config: MthreadsConfig) -> Sequence[Device]:
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
