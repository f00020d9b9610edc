"""
AWS Neuron: whole devices in runs and groups, single cores by number.

Compute, of a device or a share, is a set of cores: bit n is core n.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/awsneuron/device.go
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from hami_scheduler.rules.vendor_parts import counted_devices
from hami_scheduler.values.attempt import Attempt, Chooser, Options, Refusals
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.inventory import node_capacity
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.vendor import Allotment, FitRules, VendorRules
from hamicommon.model import Device
from hamicommon.pod.amounts import Amounts
from hamicommon.vendors import awsneuron
from hamicommon.vendors.description import Vendor

_TYPE_LABEL = "node.kubernetes.io/instance-type"
_GROUPS = (1, 4, 8, 16)
"""How many devices of a Trainium instance are linked to each other."""


def rules(vendor: Vendor) -> VendorRules:
    """Return AWS Neuron as decisions see it."""
    return VendorRules(
        vendor,
        fit=FitRules(
            amounts=_amounts,
            counts_memory=False,
            counts_cores=False,
            check_last=_refusal_of_cores,
            choose=_chooser,
        ),
        read_devices=partial(_read_devices, config=vendor.config),
        annotate=partial(_annotate, core_resource=vendor.config.resource_core_name),
        core_unit="cores",
        core_units=np.bitwise_count,
        kubelet_resources=(vendor.config.resource_count_name, vendor.config.resource_core_name),
    )


def _read_devices(node: Mapping[str, Any], config: awsneuron.AwsNeuronConfig) -> Sequence[Device]:
    count = node_capacity(node, config.resource_count_name)
    cores = node_capacity(node, config.resource_core_name) // count if count else 0
    kind = ((node.get("metadata") or {}).get("labels") or {}).get(_TYPE_LABEL) or ""
    mask = (1 << min(cores, awsneuron.CORES_PER_DEVICE)) - 1
    custom = {"instance_type": kind}
    device = Device("", count=cores, memory_mib=0, core_percent=mask, type=awsneuron.KEY, custom=custom)
    return counted_devices(node, count, awsneuron.KEY, device)


def _amounts(use: DeviceUse, attempt: Attempt) -> Amounts:
    """Return the lowest free cores, as many as asked of each device."""
    everything = use.device.core_percent
    asked = attempt.request.core_percent or everything.bit_count()
    free = [1 << core for core in range(everything.bit_length()) if not use.core_percent >> core & 1]
    return Amounts(1, 0, sum(free[:asked]))


def _refusal_of_cores(use: DeviceUse, attempt: Attempt) -> Reason | None:
    asked = attempt.request.core_percent or use.device.core_percent.bit_count()
    return Reason.CORE if _amounts(use, attempt).core_percent.bit_count() < asked else None


def _chooser(attempt: Attempt) -> Chooser | None:
    return _run_of_idle if attempt.request.count > 1 else None


def _run_of_idle(attempt: Attempt, options: Options, _refusals: Refusals) -> Options | Misfit:
    """Return the first run of idle devices: anywhere on Inferentia, at the start of a group elsewhere."""
    count = attempt.request.count
    idle = {option.use.device.index: option for option in options if option.use.replicas == 0}
    is_ring = "inf" in str(attempt.candidates[0].device.custom.get("instance_type", "")).lower()
    step = 1 if is_ring else count
    if is_ring or count in _GROUPS:
        for start in range(0, len(attempt.candidates) - count + 1, step):
            if idle.keys() >= set(range(start, start + count)):
                return [idle[index] for index in range(start, start + count)]
    return Misfit(((Reason.NUMA, 1),), len(attempt.candidates))


def _annotate(allotment: Allotment, *, core_resource: str) -> dict[str, str]:
    """Return the devices of all containers, or the cores if the Pod asks for cores."""
    ids: list[int] = []
    is_by_core = False
    for _, request, shares in allotment.granted:
        for share in shares:
            device = allotment.devices[share.uuid]
            if request.core_percent == 0:
                ids.append(device.index)
                continue
            is_by_core = True
            cores = [core for core in range(share.core_percent.bit_length()) if share.core_percent >> core & 1]
            ids.extend(device.count * device.index + core for core in cores)
    found = {
        "AWS_NEURON_IDS": ",".join(map(str, ids)),
        "NEURON_ALLOC_TIME": str(allotment.unix_nanoseconds),
        "NEURON_ALLOCATED": "false",
        "aws.amazon.com/predicate-node": allotment.node,
    }
    return found | ({"NEURON_RESOURCE_TYPE": core_resource} if is_by_core else {})
