"""
Add up how long devices were offered, held by Pods, and idle, and compute what part of its devices each Pod uses now.

A book is complete up to one moment. Advancing it adds exactly the time from there to a later moment, so nothing counts
twice, and a book that is advanced after a pause has no gap. In each book, what all namespaces have held is what all
devices were held, and the rest of what they were offered was idle.
Shares that complement each other, such as 3/4 of the memory beside 3/4 of the compute, are together more than their
device. Each then pays less, in proportion, so that nobody pays for more than there is.
Use is priced like what a Pod holds, by the larger of memory and compute. The driver's numbers count if there are any.
Else those of a region count, which its container can write: for its own Pod only, and for at most one device.
Neighbours: `share_time` says who holds shares when, `price` what part of a device they are, and
`hami_monitor.decide.observation` has the numbers of use.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple, TypeVar

from hami_monitor.decide.accounts.price import Offer, Offers, part_of, parts
from hami_monitor.decide.observation import MIB, ShownDevice
from hami_monitor.decide.share_time import ShareTime

KEPT_SECONDS = 3600.0
"""How long a Pod that holds nothing any more keeps its row."""
PODS_MAX = 1000
"""Most rows of Pods, if no more hold shares now; older ones are dropped."""
NAMESPACES_MAX = 1000
"""Most rows of namespaces; those that have held nothing for the longest time are dropped."""
DEVICES_MAX = 256
"""Most devices; those that the Node has not offered for the longest time are dropped."""


class PodKey(NamedTuple):
    """One row of Pods."""

    namespace: str
    pod: str
    device_type: str


class NamespaceKey(NamedTuple):
    """One row of namespaces."""

    namespace: str
    device_type: str


@dataclass(frozen=True, slots=True)
class ShareAccount:
    """What a Pod or a namespace has held and used of devices of one type, in seconds of one whole device."""

    held_seconds: float = 0.0
    used_seconds: float = 0.0
    last_seconds: float = 0.0
    """Unix time at which it still held something."""


@dataclass(frozen=True, slots=True)
class DeviceAccount:
    """What became of the time of one device, in seconds."""

    type: str
    held_seconds: float = 0.0
    idle_seconds: float = 0.0
    """What nobody has held of the time in which it was offered."""
    last_seconds: float = 0.0
    """Unix time at which it was still offered."""


@dataclass(frozen=True, slots=True)
class Book:
    """All sums of one Node, complete up to one moment."""

    until_seconds: float
    """Unix time."""
    pods: Mapping[PodKey, ShareAccount] = field(default_factory=dict)
    namespaces: Mapping[NamespaceKey, ShareAccount] = field(default_factory=dict)
    """With what their Pods have held that have no row any more."""
    devices: Mapping[str, DeviceAccount] = field(default_factory=dict)
    """By UUID."""


Key = TypeVar("Key")
Account = TypeVar("Account", ShareAccount, DeviceAccount)


class Interval(NamedTuple):
    """A part of one device that a Pod holds from one moment to another."""

    began_seconds: float
    ended_seconds: float
    part: float
    pod: PodKey


def advance(
    book: Book, until_seconds: float, offers: Offers, share_times: Iterable[ShareTime], used: Mapping[PodKey, float]
) -> Book:
    """
    Return *book* with the time from its end to *until_seconds*, and with *used*, in seconds of one device.

    A device counts from the first call that has it in *offers*, and only while it is there. Nothing is added if
    *until_seconds* is not later than the book's end, except *used*.
    """
    until_seconds = max(until_seconds, book.until_seconds)
    devices, held = dict(book.devices), defaultdict[PodKey, float](float)
    intervals = _intervals(share_times, offers, book.until_seconds, until_seconds)
    for uuid, offer in offers.items():
        account = devices.get(uuid)
        if account is None:
            devices[uuid] = DeviceAccount(offer.type, last_seconds=until_seconds)
            continue
        charged = charge(intervals.get(uuid, ()))
        for pod, seconds in charged.items():
            held[pod] += seconds
        elapsed = until_seconds - book.until_seconds
        total = min(sum(charged.values()), elapsed)  # They differ by rounding at most.
        devices[uuid] = DeviceAccount(
            offer.type,
            account.held_seconds + total,
            account.idle_seconds + (elapsed - total),
            until_seconds,
        )
    return Book(
        until_seconds,
        _kept(_added(book.pods, held, used, until_seconds), PODS_MAX, until_seconds, until_seconds - KEPT_SECONDS),
        _kept(
            _added(book.namespaces, _by_namespace(held), _by_namespace(used), until_seconds),
            NAMESPACES_MAX,
            until_seconds,
        ),
        _kept(devices, DEVICES_MAX, until_seconds),
    )


def charge(intervals: Iterable[Interval]) -> dict[PodKey, float]:
    """
    Return the seconds of one device that each Pod pays for its *intervals* on it.

    While the parts are together more than the device, each counts less, in proportion.
    """
    kept = list(intervals)
    begins = [(one.began_seconds, True, at) for at, one in enumerate(kept)]
    ends = [(one.ended_seconds, False, at) for at, one in enumerate(kept)]
    seconds: dict[PodKey, float] = {}
    active: set[int] = set()
    for (moment, is_begin, at), (following, _, _) in pairwise(sorted([*begins, *ends])):
        (active.add if is_begin else active.discard)(at)
        if following == moment:
            continue
        whole = max(1.0, sum(kept[one].part for one in active))
        for one in active:
            pod = kept[one].pod
            seconds[pod] = seconds.get(pod, 0.0) + (following - moment) * kept[one].part / whole
    return seconds


def _intervals(
    share_times: Iterable[ShareTime], offers: Offers, since: float, until: float
) -> dict[str, list[Interval]]:
    """Return what *share_times* hold of each device of *offers* between *since* and *until*."""
    found: dict[str, list[Interval]] = {}
    for share_time in share_times:
        prepared = min(share_time.prepared_seconds, share_time.ended_seconds)
        for began, ended, is_prepared in (
            (share_time.began_seconds, prepared, False),
            (max(prepared, share_time.began_seconds), share_time.ended_seconds, True),
        ):
            first, last = max(began, since), min(ended, until)
            if last > first:
                for uuid, part in parts(share_time.containers, offers, is_prepared=is_prepared).items():
                    pod = PodKey(share_time.namespace, share_time.name, offers[uuid].type)
                    found.setdefault(uuid, []).append(Interval(first, last, part, pod))
    return found


def _added(
    accounts: Mapping[Key, ShareAccount], held: Mapping[Key, float], used: Mapping[Key, float], until_seconds: float
) -> dict[Key, ShareAccount]:
    """Return *accounts* with what was *held* and *used*; who never held anything cannot have used it."""
    added = dict(accounts)
    for key, seconds in held.items():
        before = added.get(key, ShareAccount())
        added[key] = replace(before, held_seconds=before.held_seconds + seconds, last_seconds=until_seconds)
    for key in used.keys() & added.keys():
        added[key] = replace(added[key], used_seconds=added[key].used_seconds + used[key])
    return added


def _by_namespace(seconds: Mapping[PodKey, float]) -> dict[NamespaceKey, float]:
    sums = defaultdict[NamespaceKey, float](float)
    for pod, amount in seconds.items():
        sums[NamespaceKey(pod.namespace, pod.device_type)] += amount
    return sums


def _kept(
    accounts: Mapping[Key, Account], most: int, now_seconds: float, since_seconds: float = -math.inf
) -> dict[Key, Account]:
    """
    Return those of *accounts* that count at *now_seconds*, and the newest of the others, *most* together.

    Of the others, those that have not counted since *since_seconds* are left out.
    """
    old = [key for key, account in accounts.items() if account.last_seconds < now_seconds]
    newest = sorted(old, key=lambda key: accounts[key].last_seconds, reverse=True)
    kept = {
        key for key in newest[: max(most - len(accounts) + len(old), 0)] if accounts[key].last_seconds >= since_seconds
    }
    dropped = set(old) - kept
    return {key: account for key, account in accounts.items() if key not in dropped}


def used_parts(shown: Iterable[ShownDevice], offers: Offers) -> dict[PodKey, float]:
    """Return the devices that each Pod uses now, such as 0.5 for half of one."""
    of_devices: dict[tuple[str, str, str], float] = {}
    for one in shown:
        namespace, pod, _, _, uuid = one.labels
        if uuid in offers:
            place = (namespace, pod, uuid)
            of_devices[place] = min(of_devices.get(place, 0.0) + _part(one, offers[uuid]), 1.0)
    found: defaultdict[PodKey, float] = defaultdict(float)
    for (namespace, pod, uuid), part in of_devices.items():
        found[PodKey(namespace, pod, offers[uuid].type)] += part
    return found


def _part(one: ShownDevice, offer: Offer) -> float:
    memory_bytes = None if one.driver is None else one.driver.used_bytes
    busy_ratio = None if one.driver is None else one.driver.busy_ratio
    if memory_bytes is None:
        memory_bytes = 0 if one.sums is None else one.sums.total
    if busy_ratio is None:
        busy_ratio = 0.0 if one.sums is None else one.sums.sm / 100
    return part_of(memory_bytes / (max(offer.memory_mib, 1) * MIB), busy_ratio)
