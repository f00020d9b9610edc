"""
What is granted of each device and each namespace, and whether that is too much.

Judged whenever a Pod comes to hold more than before, by what the device offered and what the quotas allowed then. A
device that shrinks or is lost later makes no grant wrong.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hamicommon.model import Device
from hamicommon.pod.amounts import NOTHING, Amounts
from hamicommon.vendors.description import Vendor, limit_readers
from hamicommon.wire.resource_quota import PREFIX, hard_limits, strictest
from harness.history.findings import Rule
from harness.history.grants import Fault
from harness.history.reading import WHOLE_PERCENT, Holding, Pod
from harness.history.window import Window

Holdings = Mapping[tuple[str, str], Holding]
"""What somebody holds, by Node and UUID."""


class Devices:
    """Who holds what of each device."""

    def __init__(self) -> None:
        self.holders: dict[tuple[str, str], dict[str, Holding]] = defaultdict(dict)
        """By Node and UUID, then by Pod, as `default/p`, or claim, as `ResourceClaim default/c`."""

    def put(self, name: str, held: Holdings, holds: Holdings) -> list[tuple[str, str]]:
        """Replace what *name* holds, and return the places of which it holds more than before."""
        for place in held.keys() - holds.keys():
            self.holders[place].pop(name, None)
            if not self.holders[place]:
                del self.holders[place]
        for place, holding in holds.items():
            self.holders[place][name] = holding
        return [place for place, each in holds.items() if _is_more(each, held.get(place, Holding()))]

    def faults(self, node: str, uuid: str, offers: Sequence[Device]) -> Iterator[Fault]:
        """Yield which rules the holders of a device break if it was at best one of *offers*."""
        holders = self.holders[node, uuid]
        whole = sum_of(each.amount for each in holders.values())
        count, memory_mib, core_percent = (
            max(device.count for device in offers),
            max(device.memory_mib for device in offers),
            max(device.core_percent for device in offers),
        )
        if whole.replicas > count:
            yield (
                Rule.COUNT,
                f"{whole.replicas} shares of {count} on {uuid} of Node {node}: {_list(holders, 'replicas')}",
            )
        if whole.memory_mib > memory_mib:
            held = _list(holders, "memory_mib")
            yield Rule.MEMORY, f"{whole.memory_mib} MiB of {memory_mib} on {uuid} of Node {node}: {held}"
        if whole.core_percent > core_percent:
            held = _list(holders, "core_percent")
            yield Rule.CORES, f"{whole.core_percent} % of {core_percent} % compute on {uuid} of Node {node}: {held}"
        exclusive = [name for name, each in holders.items() if each.has_all_compute]
        is_shared = len(holders) > 1 or any(each.is_crowded for each in holders.values())
        if exclusive and is_shared and core_percent == WHOLE_PERCENT:
            yield (
                Rule.EXCLUSIVE,
                f"{', '.join(exclusive)} has all compute of {uuid} of Node {node}, held by {', '.join(holders)}",
            )


class Quotas:
    """What each namespace holds, and may hold."""

    def __init__(self) -> None:
        self._hard: dict[str, dict[str, dict[str, int]]] = defaultdict(dict)
        """By namespace and ResourceQuota, then by resource."""
        self._limits: dict[str, Window[dict[str, int]]] = {}
        self._held: dict[tuple[str, str], dict[str, Amounts]] = defaultdict(dict)
        """By namespace and vendor key, then by Pod."""

    def put_quota(self, item: Mapping[str, Any], vendors: Sequence[Vendor], at: float, *, is_gone: bool) -> None:
        """Replace or remove a ResourceQuota."""
        meta = item["metadata"]
        namespace, name = meta["namespace"], meta["name"]
        self._hard[namespace][name] = {} if is_gone else hard_limits(item, limit_readers(vendors))
        limits = strictest(self._hard[namespace].values())
        if namespace in self._limits:
            self._limits[namespace].put(limits, at)
        else:
            self._limits[namespace] = Window({}, at)
            self._limits[namespace].put(limits, at)

    def put(self, name: str, before: Pod | None, after: Pod | None) -> bool:
        """Replace what the Pod *name* holds, and return whether it is more than before."""
        held, holds = before.total if before else {}, after.total if after else {}
        namespace = name.partition("/")[0]
        for vendor in held.keys() | holds.keys():
            self._held[namespace, vendor].pop(name, None)
            if vendor in holds:
                self._held[namespace, vendor][name] = holds[vendor]
        return any(_exceeds(each, held.get(vendor, NOTHING)) for vendor, each in holds.items())

    def faults(self, pod: Pod, vendors: Sequence[Vendor], at: float) -> Iterator[Fault]:
        """Yield which limits the namespace of *pod* passes."""
        if pod.namespace not in self._limits:
            return
        allowed = self._limits[pod.namespace].at(at)
        for vendor in vendors:
            held = sum_of(self._held[pod.namespace, vendor.key].values())
            amounts = {vendor.memory_resource_name: (held.memory_mib, "MiB")}
            if vendor.grants_percent:
                amounts[vendor.core_resource_name] = (held.core_percent, "%")
            for resource, (amount, unit) in amounts.items():
                limits = [limits.get(resource) for limits in allowed]
                if amount and None not in limits and amount > max(filter(None, limits), default=0):
                    yield (
                        Rule.QUOTA,
                        f"namespace {pod.namespace} holds {amount} {unit}, {PREFIX}{resource} is {limits[-1]}",
                    )

    def limits(self, namespace: str) -> Mapping[str, int]:
        """Return the limits on devices of *namespace* at present, by resource."""
        return self._limits[namespace].present if namespace in self._limits else {}


def sum_of(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sum of *amounts*."""
    whole = NOTHING
    for amount in amounts:
        whole = whole.plus(amount)
    return whole


def _exceeds(one: Amounts, other: Amounts) -> bool:
    return one.peak(other) != other


def _is_more(now: Holding, before: Holding) -> bool:
    is_newly_alone = (now.has_all_compute and not before.has_all_compute) or (now.is_crowded and not before.is_crowded)
    return is_newly_alone or _exceeds(now.amount, before.amount)


def _list(holders: Mapping[str, Holding], amount: str) -> str:
    return ", ".join(f"{name} {getattr(each.amount, amount)}" for name, each in sorted(holders.items()))
