"""
MetaX, shared devices: Pods of one class and one QoS policy share a device; links and classes rate devices and Nodes.

While its plugin sets a device up for a Pod, the device has the Pod's QoS policy, else the one that the Node reports.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/metax/sdevice.go
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from hami_scheduler.rules.fit import WHOLE_CORE_PERCENT, memory_asked, refusal_of_cores
from hami_scheduler.values.attempt import Attempt, Chooser, Options, Refusals, ShareOption
from hami_scheduler.values.constraints import Constraints, annotation
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.inventory import node_annotation
from hami_scheduler.values.reasons import Reason
from hami_scheduler.values.vendor import Allotment, FitRules, NodeView, Prospect, VendorRules
from hamicommon.model import Device
from hamicommon.pod.amounts import Amounts
from hamicommon.vendors import metax
from hamicommon.vendors.description import Vendor
from hamicommon.wire.go.json_writer import compact
from hamicommon.wire.go.strconv import parse_bool

_ONLINE, _OFFLINE = "online", "offline"
_LINK = 10
"""The value of a link between two devices of one zone."""
_OUTWEIGHS = 10000
"""How much more the rating counts than the usage of a Node."""


def rules(vendor: Vendor) -> VendorRules:
    """Return MetaX's shared devices as decisions see it."""
    return VendorRules(
        vendor,
        fit=FitRules(
            amounts=_amounts,
            counts_cores=False,
            unhealthy=Reason.SICK,
            check_first=_refusal_by_pods,
            check_last=_refusal_of_cores,
            choose=_chooser,
        ),
        read_devices=_read_devices,
        pod_keys=(metax.QOS_KEY, metax.CLASS_KEY, metax.TOPOLOGY_KEY),
        annotate=_annotate,
        rate=partial(_rate, is_topology_aware=vendor.config.sgpu_topology_aware),
        rate_at_best=partial(_rate_at_best, is_topology_aware=vendor.config.sgpu_topology_aware),
    )


def _read_devices(node: Mapping[str, Any]) -> Sequence[Device]:
    text = node_annotation(node, metax.SGPU_REGISTER_KEY)
    return () if text is None else metax.decode_sgpu_devices(text)


def _is_online(attempt: Attempt) -> bool:
    return attempt.constraints.annotation(metax.CLASS_KEY) == _ONLINE


def _amounts(use: DeviceUse, attempt: Attempt) -> Amounts:
    """Return what a share takes. Online Pods are promised no compute, because they take what they need."""
    cores = 0 if _is_online(attempt) else attempt.request.held_core_percent
    return Amounts(1, memory_asked(attempt.request, use.device.memory_mib), cores)


def _refusal_by_pods(use: DeviceUse, attempt: Attempt) -> Reason | None:
    """Return why the Pod cannot share a device with the Pods on it."""
    if use.replicas == 0:
        return None
    if not _accepts_class(use, attempt.constraints.annotation(metax.CLASS_KEY)):
        return Reason.APP_CLASS
    is_bound_by_qos = not _is_online(attempt) and attempt.request.core_percent != WHOLE_CORE_PERCENT
    if is_bound_by_qos and _qos(use) not in {"", attempt.constraints.annotation(metax.QOS_KEY)}:
        return Reason.QOS
    return None


def _accepts_class(use: DeviceUse, wanted: str) -> bool:
    """Return whether a Pod of class *wanted* may join: no Pods without a class, no offline Pod beside online ones."""
    online, offline = _classes(use)
    if bool(online or offline) is not (wanted in {_ONLINE, _OFFLINE}):
        return False
    return not (online and wanted == _OFFLINE)


def _classes(use: DeviceUse) -> tuple[int, int]:
    """Return the numbers of other Pods on a device: online, offline."""
    classes = [annotation(pod.vendor_annotations, metax.CLASS_KEY) for pod in use.pods if not pod.is_asking]
    return classes.count(_ONLINE), classes.count(_OFFLINE)


def _qos(use: DeviceUse) -> str:
    """Return the QoS policy of a device in use, empty if any policy may join."""
    coming = [t for t in use.pods if not t.is_set_up and annotation(t.vendor_annotations, metax.CLASS_KEY) != _ONLINE]
    if not coming:
        return str(use.device.custom.get(metax.DEVICE_QOS, ""))
    last = coming[-1]
    return "" if last.core_percent == WHOLE_CORE_PERCENT else annotation(last.vendor_annotations, metax.QOS_KEY)


def _refusal_of_cores(use: DeviceUse, attempt: Attempt) -> Reason | None:
    return (
        None if _is_online(attempt) else refusal_of_cores(use, attempt.request.held_core_percent, attempt.constraints)
    )


def _chooser(attempt: Attempt) -> Chooser | None:
    if attempt.constraints.annotation(metax.CLASS_KEY):
        return _least_disturbed if _is_online(attempt) else None
    return _best_zones if attempt.request.core_percent == WHOLE_CORE_PERCENT else None


def _least_disturbed(attempt: Attempt, options: Options, _refusals: Refusals) -> Options | None:
    """Return the options where an online Pod disturbs least: few online Pods, no offline Pod that would stop."""

    def key(option: ShareOption) -> tuple[bool, int, int]:
        online, offline = _classes(option.use)
        return (not online and offline > 0, online, offline)

    count = attempt.request.count
    if len(options) < count:
        return None
    return list(options) if len(options) == count else sorted(options, key=key)[:count]


def _best_zones(attempt: Attempt, options: Options, _refusals: Refusals) -> Options | None:
    """
    Return options of the smallest zone that has enough, else of several zones, smallest first.

    Of equal zones the one tried first wins.
    """
    count = attempt.request.count
    if len(options) <= count:
        return list(options) if len(options) == count else None
    zones: defaultdict[int, list[ShareOption]] = defaultdict(list)
    for option in options:
        zones[max(0, _zone(option.use.device))].append(option)
    unlinked = zones.pop(0, [])
    by_size = sorted(zones.values(), key=len)
    for zone in by_size:
        if len(zone) >= count:
            return zone[:count]
    return [*(option for zone in by_size for option in zone), *unlinked][:count]


def _zone(device: Device) -> int:
    return int(device.custom.get(metax.DEVICE_ZONE, 0))


def _rate(view: NodeView, *, is_topology_aware: bool) -> float:
    """Return the rating of the chosen devices. It is the same under every policy, and outweighs usage."""
    weight = -_OUTWEIGHS if view.is_spread else _OUTWEIGHS
    if view.constraints.annotation(metax.CLASS_KEY) == _ONLINE:
        return weight * _rate_online(view)
    return weight * _rate_links(view) if _counts_links(view.constraints, is_topology_aware=is_topology_aware) else 0


def _rate_at_best(prospect: Prospect, *, is_topology_aware: bool) -> float:
    """Return the rating of devices of one zone that leave no link unused; 0 if links do not count."""
    if not _counts_links(prospect.constraints, is_topology_aware=is_topology_aware):
        return 0
    weight = -_OUTWEIGHS if prospect.is_spread else _OUTWEIGHS
    return weight * 10 * _LINK * math.comb(sum(prospect.counts), 2)


def _counts_links(constraints: Constraints, *, is_topology_aware: bool) -> bool:
    """Return whether links decide under *constraints*: never for online Pods, else by annotation or default."""
    text = constraints.annotation(metax.TOPOLOGY_KEY)
    asked = parse_bool(text) if text else None
    return constraints.annotation(metax.CLASS_KEY) != _ONLINE and bool(is_topology_aware if asked is None else asked)


def _rate_online(view: NodeView) -> int:
    chosen = {share.uuid for container in view.shares for share in container}
    rating = 0
    for use in view.uses:
        if use.device.id in chosen:
            online, offline = _classes(use)
            rating -= 100 * offline if offline and not online else 20 * online + 2 * offline
    return rating


def _rate_links(view: NodeView) -> int:
    """Return the value of the links among whole devices, minus the links that can no longer be used."""
    whole = [s.uuid for container in view.shares for s in container if s.core_percent == WHOLE_CORE_PERCENT]
    if not whole:
        return 0
    free = [use.device.id for use in view.uses if use.replicas == 0]
    rest = [uuid for uuid in free if uuid not in whole]
    zones = {uuid: _zone(device) for uuid, device in view.devices.items()}
    chosen = _links(whole, zones)
    return 10 * chosen - (_links(free, zones) - chosen - _links(rest, zones))


def _links(uuids: Sequence[str], zones: Mapping[str, int]) -> int:
    return sum(_LINK for a, b in combinations(uuids, 2) if a != b and zones[a] and zones[a] == zones[b])


def _annotate(allotment: Allotment) -> dict[str, str]:
    granted = [
        [
            {"uuid": share.uuid}
            | ({"compute": share.core_percent} if share.core_percent else {})
            | ({"vRam": share.memory_mib} if share.memory_mib else {})
            for share in shares
        ]
        for _, _, shares in allotment.containers
    ]
    return {
        "metax-tech.com/gpu-devices-allocated": compact(granted),
        "metax-tech.com/predicate-time": str(allotment.unix_nanoseconds),
    }
