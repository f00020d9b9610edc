"""
A scheduler by brute force, to hold the real one against: small, slow and obvious.

Owns a second opinion: whether a Pod fits a Node is found out by trying every choice of devices for every container, and
usage by listing every moment of a Pod's life. Shares nothing with the code under test but Kubernetes' and HAMi's rules.
Amounts are (replicas, MiB, percent) throughout.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

Amounts = tuple[int, int, int]
Taken = dict[str, Amounts]
"""Per device: what is taken of it."""


@dataclass(frozen=True)
class Card:
    """One device as its Node offers it."""

    uuid: str
    offers: Amounts
    is_open: bool = True


@dataclass(frozen=True)
class Ask:
    """What one container wants: *count* different devices, and of each the same."""

    kind: str
    """`init`, `sidecar` or `app`."""
    count: int
    memory_mib: int
    core_percent: int


@dataclass(frozen=True)
class Held:
    """What one Pod holds on a Node: per container its kind and the (device, MiB, percent) of each share."""

    node: str
    namespace: str
    containers: tuple[tuple[str, tuple[tuple[str, int, int], ...]], ...]
    inits_are_done: bool = False


def plus(one: Amounts, other: Amounts) -> Amounts:
    """Return both together."""
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


def moments(held: Held) -> Iterator[list[tuple[str, int, int]]]:
    """Yield the shares in use at each moment of a Pod's life: each init container's turn, and then for good."""
    sidecars: list[tuple[str, int, int]] = []
    for kind, shares in held.containers:
        if kind == "sidecar":
            sidecars.extend(shares)
        elif kind == "init" and not held.inits_are_done:
            yield [*sidecars, *shares]
    yield sidecars + [share for kind, shares in held.containers if kind == "app" for share in shares]


def peak(held: Held) -> Taken:
    """Return the most a Pod takes of each device, quantity by quantity."""
    most: Taken = {}
    for moment in moments(held):
        now: Taken = {}
        for uuid, memory_mib, core_percent in moment:
            now[uuid] = plus(now.get(uuid, (0, 0, 0)), (1, memory_mib, core_percent))
        for uuid, amounts in now.items():
            before = most.get(uuid, (0, 0, 0))
            most[uuid] = (max(before[0], amounts[0]), max(before[1], amounts[1]), max(before[2], amounts[2]))
    return most


def usage(pods: Sequence[Held], node: str) -> Taken:
    """Return what *pods* take of the devices of *node* together."""
    total: Taken = {}
    for held in pods:
        if held.node == node:
            for uuid, amounts in peak(held).items():
                total[uuid] = plus(total.get(uuid, (0, 0, 0)), amounts)
    return total


def takes(card: Card, taken: Amounts, ask: Ask) -> bool:
    """
    Return whether *card*, of which so much is *taken*, takes one more share of *ask*.

    A share of the whole compute wants the device alone; one without compute wants some left.
    """
    replicas, memory_mib, core_percent = card.offers
    if not card.is_open or taken[0] >= replicas or taken[1] + ask.memory_mib > memory_mib:
        return False
    if taken[2] + ask.core_percent > core_percent or (ask.core_percent == 100 and taken[0] > 0):
        return False
    return not (ask.core_percent == 0 and taken[2] == core_percent)


def placements(cards: Sequence[Card], taken: Taken, asks: Sequence[Ask]) -> Iterator[tuple[tuple[str, ...], ...]]:
    """Yield every way to give each container of *asks* in turn its devices, as the UUIDs each of them gets."""
    if not asks:
        yield ()
        return
    ask, rest = asks[0], asks[1:]
    willing = [card.uuid for card in cards if takes(card, taken.get(card.uuid, (0, 0, 0)), ask)]
    for chosen in combinations(willing, ask.count):
        share = (1, ask.memory_mib, ask.core_percent)
        with_it = taken | {uuid: plus(taken.get(uuid, (0, 0, 0)), share) for uuid in chosen}
        for others in placements(cards, taken if ask.kind == "init" else with_it, rest):
            yield (chosen, *others)


def fits(
    cards: Sequence[Card],
    pods: Sequence[Held],
    node: str,
    namespace: str,
    asks: Sequence[Ask],
    memory_limits: Mapping[str, int],
) -> bool:
    """Return whether *asks* can be met on *node* in any way, within its namespace's limit of MiB."""
    limit = memory_limits.get(namespace)
    used = sum(amounts[1] for held in pods if held.namespace == namespace for amounts in peak(held).values())
    for placement in placements(cards, usage(pods, node), asks):
        shares = tuple(
            (ask.kind, tuple((uuid, ask.memory_mib, ask.core_percent) for uuid in uuids))
            for ask, uuids in zip(asks, placement, strict=True)
        )
        own = sum(amounts[1] for amounts in peak(Held(node, namespace, shares)).values())
        if limit is None or used + own <= limit:
            return True
    return False


def fullness(cards: Sequence[Card], taken: Taken) -> Fraction:
    """Return how full a Node is: ten times the sum of its three ratios, 0 where it offers nothing of one of them."""
    offered = used = (0, 0, 0)
    for card in cards:
        offered, used = plus(offered, card.offers), plus(used, taken.get(card.uuid, (0, 0, 0)))
    if not all(offered):
        return Fraction(0)
    return 10 * sum((Fraction(part, whole) for part, whole in zip(used, offered, strict=True)), Fraction(0))
