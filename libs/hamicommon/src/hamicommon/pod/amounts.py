"""
What a Pod holds of each device, from the shares of its containers.

Owns Kubernetes' formula for containers that do not all run at once (KEP-753). An ordinary init container runs with the
sidecars before it. App containers run together, with all sidecars. The Pod takes the largest of these sums. The same
formula says what the kubelet counts: replicas of extended resources, over the Pod's whole life. Knows no vendor and no
Node.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final, Protocol, Self, TypeVar

from hamicommon.model import ContainerShares, PodShares
from hamicommon.pod.containers import ContainerKind, containers_of
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.mig import decode_mig_suffix
from hamicommon.wire.quantity import QuantityError, parse_quantity, whole

AMOUNT_LIMIT = 2**31 - 1
"""The most that HAMi can write; a larger amount is read as this."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What shares take of one device."""

    replicas: int = 0
    memory_mib: int = 0
    core_percent: int = 0

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sum."""
        return Amounts(
            self.replicas + other.replicas, self.memory_mib + other.memory_mib, self.core_percent + other.core_percent
        )

    def minus(self, other: "Amounts") -> "Amounts":
        """Return what is left without *other*, which is a part of it."""
        return Amounts(
            self.replicas - other.replicas, self.memory_mib - other.memory_mib, self.core_percent - other.core_percent
        )

    def peak(self, other: "Amounts") -> "Amounts":
        """Return the larger of each quantity."""
        return Amounts(
            max(self.replicas, other.replicas),
            max(self.memory_mib, other.memory_mib),
            max(self.core_percent, other.core_percent),
        )


NOTHING = Amounts()


class Summable(Protocol):
    """Something of one device, or of one resource, that containers take."""

    def plus(self, other: Self) -> Self:
        """Return what two take that run together."""

    def peak(self, other: Self) -> Self:
        """Return what two take that run one after the other."""


A = TypeVar("A", bound=Summable)


def amounts_over_time(
    kinds: Sequence[ContainerKind], shares: PodShares, *, inits_are_done: bool = False
) -> dict[str, Amounts]:
    """
    Return the most that containers of *kinds* with *shares* take from each device at any time, by UUID.

    Entries of *shares* beyond *kinds* count as app containers. With *inits_are_done* ordinary init containers count
    nothing.
    """
    return most_over_time(kinds, map(sum_shares, shares), inits_are_done=inits_are_done)


def most_over_time(
    kinds: Sequence[ContainerKind], taken: Iterable[Mapping[str, A]], *, inits_are_done: bool = False
) -> dict[str, A]:
    """
    Return the most that containers of *kinds* take at any time, if each takes its part of *taken*.

    The keys of *taken* are devices or resources. Entries beyond *kinds* count as app containers. With *inits_are_done*
    ordinary init containers count nothing.

    >>> init, app = ContainerKind.INIT, ContainerKind.APP
    >>> most_over_time((init, app, app), [{"gpu": Amounts(3)}, {"gpu": Amounts(1)}, {"gpu": Amounts(1)}])
    {'gpu': Amounts(replicas=3, memory_mib=0, core_percent=0)}
    """
    sidecars: dict[str, A] = {}
    peaks: dict[str, A] = {}
    apps: dict[str, A] = {}
    for position, container in enumerate(taken):
        kind = kinds[position] if position < len(kinds) else ContainerKind.APP
        if kind is ContainerKind.APP:
            _add(apps, container)
        elif kind is ContainerKind.SIDECAR:
            _add(sidecars, container)
        elif not inits_are_done:
            for key, amount in container.items():
                running = sidecars[key].plus(amount) if key in sidecars else amount
                peaks[key] = peaks[key].peak(running) if key in peaks else running
    _add(apps, sidecars)
    for key, peak in peaks.items():
        apps[key] = apps[key].peak(peak) if key in apps else peak
    return apps


def _add(sums: dict[str, A], more: Mapping[str, A]) -> None:
    for key, amount in more.items():
        sums[key] = sums[key].plus(amount) if key in sums else amount


def sum_shares(container: ContainerShares) -> dict[str, Amounts]:
    """Return what the shares of one container take, by device."""
    sums: dict[str, Amounts] = {}
    for share in container:
        if share.uuid:
            amount = Amounts(1, _bounded(share.memory_mib), _bounded(share.core_percent))
            uuid = base_uuid(share.uuid)
            sums[uuid] = sums.get(uuid, NOTHING).plus(amount)
    return sums


def base_uuid(uuid: str) -> str:
    """
    Return the device of a share's UUID, which HAMi 2.5 to 2.9 wrote with a MIG slot behind it.

    >>> base_uuid("GPU-a[1-3]")
    'GPU-a'
    """
    if "[" not in uuid:
        return uuid
    try:
        return decode_mig_suffix(uuid)[0]
    except DecodeError:
        return uuid


def _bounded(amount: int) -> int:
    return min(max(amount, 0), AMOUNT_LIMIT)


SHAPES: Final[Mapping[str, int]] = {"whole": 1, "half": 2, "quarter": 4, "eighth": 8}
"""The shapes in which free room is counted: of how many equal parts of a device one share is."""
_ENOUGH: Final = 2**31
"""Stands for what is left of an amount that a device does not count."""


def shares_left(parts: int, offered: Sequence[Any], left: Sequence[Any], least: Callable[[Any, Any], Any] = min) -> Any:
    """
    Return how many more shares of one of *parts* of a device fit, alike in memory and compute.

    *offered* and *left* are its replicas, MiB and percent: integers, or arrays of many devices with `numpy.minimum` for
    *least*. A whole device must be idle.

    >>> shares_left(4, (10, 16384, 100), (8, 9000, 60)), shares_left(1, (10, 16384, 100), (9, 16384, 100))
    (2, 0)
    """
    found = left[0]
    for capacity, free in zip(offered[1:], left[1:], strict=True):
        is_uncounted = capacity == 0
        found = least(found, (free * parts + is_uncounted * _ENOUGH) // (capacity + is_uncounted))
    return found if parts > 1 else least(found, 1) * (left[0] == offered[0])


def effective_counts(pod: Mapping[str, Any], resources: Set[str]) -> dict[str, int]:
    """
    Return how many of each of *resources* the kubelet of *pod* hands out for its whole life; without those of 0.

    An init container's replicas stay with the Pod after it has ended, and later containers reuse them. So this does
    not shrink when init containers are done, unlike what `amounts_over_time` says of devices.
    Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/manager.go (`Allocate`)
    """
    containers = containers_of(pod)
    most = most_over_time(
        [kind for _, kind in containers], [_counts_of(container, resources) for container, _ in containers]
    )
    return {name: taken.replicas for name, taken in sorted(most.items()) if taken.replicas}


def _counts_of(container: Mapping[str, Any], resources: Set[str]) -> dict[str, Amounts]:
    """Return the amounts of *resources* that *container* asks; of extended resources limit and request are equal."""
    amounts = container.get("resources") or {}
    limits, requests = amounts.get("limits") or {}, amounts.get("requests") or {}
    named = resources & (limits.keys() | requests.keys())
    return {name: Amounts(_count(limits.get(name, requests.get(name, 0)))) for name in named}


def _count(amount: str | int) -> int:
    """Return *amount* as a kubelet counts it: rounded up; 0 if it is no quantity."""
    found = whole(amount)
    if found is None:
        try:
            found = math.ceil(parse_quantity(amount))
        except QuantityError:
            return 0
    return min(max(found, 0), AMOUNT_LIMIT)
