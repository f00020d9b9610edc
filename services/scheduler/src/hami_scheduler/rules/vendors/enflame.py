"""
Enflame: whole devices are counted; shared ones are cut by profile, the smallest that is large enough.

Source: https://github.com/Project-HAMi/HAMi/tree/v2.10.0/pkg/device/enflame
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hami_scheduler.rules.vendor_parts import counted_devices
from hami_scheduler.values.attempt import Attempt
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.inventory import node_annotation, node_capacity
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.vendor import Allotment, FitRules, VendorRules
from hamicommon.model import Device, Request
from hamicommon.pod.amounts import Amounts
from hamicommon.vendors import enflame
from hamicommon.vendors.description import Vendor
from hamicommon.wire.go.json_writer import compact


def rules(vendor: Vendor) -> VendorRules:
    """Return Enflame's whole devices, or its shared ones, as decisions see them."""
    if vendor.key == enflame.GCU_KEY:
        return VendorRules(
            vendor,
            fit=FitRules(is_exclusive=True, counts_replicas=False),
            read_devices=partial(_whole_devices, config=vendor.config),
        )
    return VendorRules(
        vendor,
        fit=FitRules(amounts=_amounts, check_node=_check_node),
        read_devices=_shared_devices,
        annotate=_annotate,
        memory_in_mib=enflame.memory_mib,
    )


def _whole_devices(node: Mapping[str, Any], config: enflame.EnflameConfig) -> Sequence[Device]:
    device = Device("", count=1, memory_mib=enflame.GCU_MEMORY, core_percent=100, type=enflame.GCU_KEY)
    return counted_devices(node, node_capacity(node, config.resource_gcu_name), enflame.GCU_KEY, device)


def _shared_devices(node: Mapping[str, Any]) -> Sequence[Device]:
    text = node_annotation(node, enflame.DRS_REGISTER_KEY)
    name = (node.get("metadata") or {}).get("name") or ""
    return () if text is None else enflame.decode_drs_devices(text, name)


def _profile(request: Request, device: Device) -> enflame.Profile | None:
    return enflame.profile_for(request, device.custom[enflame.PROFILES])


def _check_node(attempt: Attempt) -> Reason | None:
    return None if all(_profile(attempt.request, use.device) for use in attempt.candidates) else Reason.MODE


def _amounts(use: DeviceUse, attempt: Attempt) -> Amounts:
    profile = _profile(attempt.request, use.device)
    return Amounts(profile.size, profile.memory_mib, profile.core_percent) if profile else Amounts(1)


def _annotate(allotment: Allotment) -> dict[str, str]:
    """Return the profile of each container, and the device and the profile of the first one."""
    assigned: dict[str, Any] = {}
    first: dict[str, str] = {}
    for name, request, shares in allotment.granted:
        device = allotment.devices[shares[0].uuid]
        profile = _profile(request, device)
        if profile is None:
            continue
        identity = {"profileID": profile.id} if profile.id else {}
        assigned[name] = {"allocated": False, "request": profile.size, **identity, "profileName": profile.name}
        first = first or {
            "enflame.com/gcu-assigned-index": str(device.index),
            "enflame.com/gcu-assigned-id": str(device.index),
            "enflame.com/gcu-assigned-minor": device.custom[enflame.MINOR],
            "enflame.com/gcu-request-size": str(profile.size),
        }
    return {
        "enflame.com/gcu-assigned": "false",
        "enflame.com/gcu-assigned-time": str(allotment.unix_nanoseconds),
        **first,
        "assigned-containers": compact(dict(sorted(assigned.items()))),
    }
