"""
Kunlun: eight devices in two wings of four, whole or shared.

Devices of a wing are linked to each other, and each to one device of the other wing. Devices are taken so that wings
stay whole. As in HAMi, the wing of a device is its position in the order of the policy, and its links are those of its
index.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/kunlun/topo.go
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any

from hami_scheduler.rules.vendor_parts import counted_devices
from hami_scheduler.values.attempt import Attempt, Chooser, Options, Refusals, ShareOption
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.inventory import node_capacity
from hami_scheduler.values.reasons import Misfit, Reason
from hami_scheduler.values.vendor import Allotment, FitRules, NodeView, Prospect, VendorRules
from hamicommon.model import Device
from hamicommon.pod.amounts import Amounts
from hamicommon.vendors import kunlun
from hamicommon.vendors.description import Vendor

_WING = 4
_REPLICAS = 100
_BRIDGES = ((0, 4), (1, 5), (2, 6), (3, 7))
"""Devices of different wings that are linked."""
_SQUARES = ((0, 1, 4, 5), (2, 3, 6, 7), (0, 2, 4, 6), (1, 3, 5, 7), (0, 3, 4, 7), (1, 2, 5, 6))
"""Four devices over both wings that are linked to each other, best first."""
_LINKS = frozenset((*_BRIDGES, *combinations(range(_WING), 2), *combinations(range(_WING, 2 * _WING), 2)))
_ODD_ORDER = (1, 3, 2, 4)
"""Numbers of free devices in a wing to take a single device from, best first."""
_REASONS_OF_DEVICES = frozenset((Reason.UNHEALTHY, Reason.CORDONED, Reason.TYPE, Reason.UUID))
"""Reasons that are counted per device. Without any of them, the refusal is that the free devices are not linked."""
_RATINGS = {-1: 3000, 0: 2000, 1: 1000, 2: 0}
"""By how much more the wings are split."""


def rules(vendor: Vendor) -> VendorRules:
    """Return Kunlun's whole devices, or its shared ones, as decisions see them."""
    if vendor.key == kunlun.KEY:
        return VendorRules(
            vendor,
            fit=FitRules(amounts=_whole, is_exclusive=True, choose=_chooser),
            read_devices=partial(_read_devices, config=vendor.config),
            annotate=_annotate,
            rate=_rate,
            rate_at_best=_rate_at_best,
        )
    return VendorRules(
        vendor,
        fit=FitRules(
            counts_cores=False, counts_replicas=False, check_last=_refusal_of_other_sizes, choose=_xpu_chooser
        ),
    )


def _read_devices(node: Mapping[str, Any], config: kunlun.KunlunConfig) -> Sequence[Device]:
    count = node_capacity(node, config.resource_count_name)
    device = Device("", count=_REPLICAS, memory_mib=kunlun.DEVICE_MIB, core_percent=100, type=kunlun.KEY)
    found = counted_devices(node, count, "kunlun", device)
    return tuple(replace(device, numa=int(device.index >= count // 2)) for device in found)


def _whole(use: DeviceUse, _attempt: Attempt) -> Amounts:
    return Amounts(1, use.device.memory_mib, use.device.core_percent)


def _refusal_of_other_sizes(use: DeviceUse, attempt: Attempt) -> Reason | None:
    """Return a refusal if the device is cut into parts of another size."""
    is_other = use.replicas > 0 and use.memory_mib // use.replicas != attempt.request.memory_mib
    return Reason.MODE if is_other else None


def _chooser(_attempt: Attempt) -> Chooser | None:
    return partial(_by_wings, told=_REASONS_OF_DEVICES)


def _xpu_chooser(attempt: Attempt) -> Chooser | None:
    told = _REASONS_OF_DEVICES | {Reason.EXCLUSIVE} if attempt.constraints.is_mutex else _REASONS_OF_DEVICES
    return partial(_by_wings, told=told)


def _by_wings(attempt: Attempt, options: Options, refusals: Refusals, *, told: Set[Reason]) -> Options | Misfit:
    """Return the options that split the wings least."""
    by_uuid = {option.uuid: option for option in options}
    places = [by_uuid.get(use.device.id) for use in attempt.candidates]
    chosen = _choose(places, attempt.request.count)
    if chosen:
        return chosen
    counts = {reason: count for reason, count in refusals.items() if count and reason in told}
    return Misfit(tuple(counts.items()) or ((Reason.NUMA, 1),), len(places))


def _choose(places: Sequence[ShareOption | None], count: int) -> Options:
    """Return *count* of the options at *places*, empty if no good combination is free."""
    wings = [[option for option in places[:_WING] if option], [option for option in places[_WING:] if option]]
    if count == 2 * _WING:
        return [*wings[0], *wings[1]] if sum(map(len, wings)) == count else []
    if count not in {1, 2, 4}:
        return []
    sizes = _ODD_ORDER if count == 1 else range(count, _WING + 1)
    for size in sizes:
        for wing in wings:
            if len(wing) == size:
                return wing[:count]
    return _choose_across(places, count)


def _choose_across(places: Sequence[ShareOption | None], count: int) -> Options:
    """Return *count* linked options from both wings."""
    free = {option.use.device.index: option for option in places if option}
    if count == 2:
        pairs = [pair for index in free for pair in _BRIDGES if index in pair and free.keys() >= set(pair)]
        return [free[index] for index in pairs[0]] if pairs else []
    squares = [square for square in _SQUARES if free.keys() >= set(square)] if count == 4 else []
    if not squares or len(free) not in {4, 5, 6}:
        return []
    chosen = squares[0]
    if len(free) == 6:
        leaving_links = [square for square in squares if tuple(sorted(free.keys() - set(square))) in _LINKS]
        chosen = leaving_links[0] if leaving_links else squares[-1]
    return [free[index] for index in chosen]


def _rate(view: NodeView) -> float:
    """Return the rating by how much more the Pod splits the wings."""
    before = {use.device.index for use in view.uses if use.replicas}
    chosen = {view.devices[share.uuid].index for container in view.shares for share in container}
    if any(use.device.vendor != kunlun.KEY for use in view.uses):
        return 0
    return _RATINGS.get(_brokenness(chosen) - _brokenness(before), 1000)


def _rate_at_best(prospect: Prospect) -> float:
    """Return the best rating for so many devices, wherever they are."""
    if any(device.vendor != kunlun.KEY for device in prospect.devices):
        return 0
    before = _brokenness(prospect.used)
    # Containers that do not run together may have the same devices.
    counts = range(max(prospect.counts), sum(prospect.counts) + 1)
    after = {_brokenness_of(left, count - left) for count in counts for left in range(count + 1)}
    ratings = [_RATINGS.get(found - before, 1000) for found in after]
    return min(ratings) if prospect.is_spread else max(ratings)


def _brokenness(indexes: Iterable[int]) -> int:
    """Return how badly *indexes* split the wings: a single device is worst, a full wing best."""
    left, right = 0, 0
    for index in indexes:
        left, right = (left + 1, right) if index < _WING else (left, right + 1)
    return _brokenness_of(left, right)


def _brokenness_of(left: int, right: int) -> int:
    """Return how badly *left* devices of one wing and *right* of the other split the wings."""
    if not left and not right:
        return 1
    return sum({4: 0, 1: 2}.get(count, 1) for count in (left, right))


def _annotate(allotment: Allotment) -> dict[str, str]:
    _, _, shares = allotment.granted[-1]
    return {"BAIDU_COM_DEVICE_IDX": ",".join(str(allotment.devices[share.uuid].index) for share in shares)}
