"""
Ascend: templates, devices grouped by network, modules of two on the 910C, and shares without templates.

Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/ascend/device.go
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hami_scheduler.rules.fit import WHOLE_CORE_PERCENT
from hami_scheduler.rules.vendor_parts import largest_groups_first
from hami_scheduler.values.attempt import Attempt, Chooser, Options, Refusals, ShareOption
from hami_scheduler.values.constraints import VendorAnnotations, annotation
from hami_scheduler.values.inventory import node_annotation, registered
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.vendor import Allotment, FitRules, NodeView, VendorRules
from hamicommon.model import Device
from hamicommon.vendors import ascend
from hamicommon.vendors.description import Vendor
from hamicommon.wire.go.json_writer import compact

_MODULE = 2
"""Devices of one 910C module."""
_NETWORK_WEIGHT = 10


def rules(vendor: Vendor) -> VendorRules:
    """Return a chip as decisions see it."""
    chip: ascend.AscendChipConfig = vendor.config
    is_networked = chip.common_word.startswith("Ascend910")
    return VendorRules(
        vendor,
        fit=FitRules(check_node=_check_node, choose=partial(_chooser, word=chip.common_word)),
        read_devices=partial(_read_devices, key=vendor.register_key, is_shared=chip.hami_vnpu_core),
        pod_keys=(ascend.MODE_KEY,),
        core_capacity=_core_capacity,
        annotate=partial(_annotate, chip=chip),
        rate=_rate if is_networked else None,
        rate_at_best=lambda prospect: 0 if prospect.is_spread else len(prospect.counts) * _NETWORK_WEIGHT,
    )


def _read_devices(node: Mapping[str, Any], key: str, *, is_shared: bool) -> Sequence[Device]:
    """Return the devices, with a mode that says whether they can be shared without templates."""
    says = node_annotation(node, ascend.SHARED_NODE_KEY)
    mode = ascend.SHARED_MODE if (is_shared if says is None else says == "true") else ""
    return tuple(replace(device, mode=mode) for device in registered(node, key))


def _core_capacity(vendor_annotations: VendorAnnotations) -> int:
    return WHOLE_CORE_PERCENT if annotation(vendor_annotations, ascend.MODE_KEY) == ascend.SHARED_MODE else 0


def _check_node(attempt: Attempt) -> Reason | None:
    is_shared = attempt.constraints.annotation(ascend.MODE_KEY) == ascend.SHARED_MODE
    is_supported = all(use.device.mode == ascend.SHARED_MODE for use in attempt.candidates)
    return Reason.MODE if is_shared and not is_supported else None


def _chooser(attempt: Attempt, *, word: str) -> Chooser | None:
    if attempt.request.count == 1:
        return None
    if word == "Ascend910C":
        return _whole_modules
    is_networked = word.startswith("Ascend910")
    return _nearest if is_networked and all("NetworkID" in use.device.custom for use in attempt.candidates) else None


def _nearest(attempt: Attempt, options: Options, _refusals: Refusals) -> Options | None:
    return largest_groups_first(options, attempt.request.count, lambda option: _network(option.use.device))


def _network(device: Device) -> int | None:
    """Return the network of a device, None if it names none that is a number."""
    found = device.custom.get("NetworkID")
    return int(found) if isinstance(found, int | float) and not isinstance(found, bool) else None


def _whole_modules(attempt: Attempt, options: Options, refusals: Refusals) -> Options | Misfit:
    """Return the devices of modules with all devices free, in the order of *options*."""
    count = attempt.request.count
    modules: defaultdict[int, list[ShareOption]] = defaultdict(list)
    for option in options:
        modules[option.use.device.index // _MODULE].append(option)
    whole = [module for module in modules.values() if len(module) == _MODULE][: -(-count // _MODULE)]
    chosen = [option for module in whole for option in module]
    if len(chosen) == count:
        return chosen
    return Misfit((*refusals.items(), (Reason.COUNT, len(chosen))), count)


def _rate(view: NodeView) -> float:
    """Return the share of devices in one network, summed over containers."""
    rating = 0.0
    for container in view.shares:
        devices = [view.devices[share.uuid] for share in container]
        if any("NetworkID" not in device.custom for device in devices):
            return 0
        named = Counter(network for network in map(_network, devices) if network is not None)
        if named:
            rating += max(named.values()) / named.total()
    return rating * _NETWORK_WEIGHT


def _annotate(allotment: Allotment, chip: ascend.AscendChipConfig) -> dict[str, str]:
    is_shared = annotation(allotment.vendor_annotations, ascend.MODE_KEY) == ascend.SHARED_MODE
    granted = []
    for _, _, shares in allotment.containers:
        for share in shares:
            parts: dict[str, Any] = {"UUID": share.uuid}
            template = "" if is_shared else ascend.template_for(chip, share.memory_mib)
            if template:
                parts["temp"] = template
            if share.memory_mib:
                parts["memory"] = share.memory_mib
            if share.core_percent:
                parts["core"] = share.core_percent
            granted.append(parts)
    return {
        f"huawei.com/{chip.common_word}": compact(granted),
        "predicate-time": str(allotment.unix_nanoseconds // 10**9),
    }
