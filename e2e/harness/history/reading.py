"""
Pods and Nodes of a history as frozen values.

Owns what a Pod holds of each device, by a formula written from KEP-753 and not shared with the services: the judge
must not repeat their mistakes. The codecs of annotations and requests, and who owns a list of
shares, are hamicommon's.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hamicommon.dra.names import DRA, node_kind
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, Device, NodeLock, PodShares, Request
from hamicommon.pod.amounts import NOTHING, Amounts, base_uuid
from hamicommon.pod.containers import ContainerKind, containers_of, has_ended, inits_are_done
from hamicommon.pod.moved import moved_out, with_moved
from hamicommon.pod.reading import read_pod as read_shares
from hamicommon.vendors.description import Vendor
from hamicommon.wire import keys
from hamicommon.wire.node_devices import decode_node_devices
from hamicommon.wire.node_lock import decode_node_lock

WHOLE_PERCENT = 100
SCHEDULER = "hami-scheduler"
"""The scheduler that is judged. A Pod of another one may be bound without a grant, or wait."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a Pod holds of one device."""

    amount: Amounts = NOTHING
    """The most at any time from now on."""
    has_all_compute: bool = False
    """Whether one of its shares is of the whole device's compute."""
    is_crowded: bool = False
    """Whether another share of the same Pod is beside such a share at any time."""


@dataclass(frozen=True, slots=True)
class Pod:
    """A Pod at one version."""

    uid: str
    namespace: str
    name: str
    node: str
    """Empty until it is bound."""
    has_ended: bool
    containers: tuple[Mapping[str, Any], ...]
    """Init containers first."""
    requests: tuple[Mapping[str, Request], ...]
    """Of each container, by vendor key."""
    texts: Mapping[str, str]
    """The annotation of the grant, by vendor key."""
    shares: Mapping[str, PodShares]
    """What it says, by vendor key, one entry for each container. Unreadable ones are missing."""
    problems: tuple[str, ...]
    """Why annotations are unreadable."""
    holdings: Mapping[str, Holding]
    """By UUID of the device; empty unless it is bound and runs."""
    total: Mapping[str, Amounts]
    """The most of all devices together at any time, by vendor key; empty likewise."""
    item: Mapping[str, Any]

    @property
    def annotations(self) -> Mapping[str, str]:
        """Its annotations."""
        return self.item["metadata"].get("annotations") or {}

    @property
    def asks(self) -> bool:
        """Whether a container asks for a device."""
        return any(self.requests)

    @property
    def names_claim(self) -> bool:
        """Whether a claim was made for its resources, so that only a Node with tokens prepares it, now or later."""
        return bool((self.item.get("status") or {}).get("extendedResourceClaimStatus"))

    @property
    def waits_for_us(self) -> bool:
        """Whether it asks for a device, is not bound, and our scheduler is to bind it."""
        is_ours = (self.item.get("spec") or {}).get("schedulerName") == SCHEDULER
        return self.asks and is_ours and not self.node and not self.has_ended

    def __str__(self) -> str:
        return f"Pod {self.namespace}/{self.name}"

    @property
    def places(self) -> Mapping[tuple[str, str], Holding]:
        """Its holdings, by Node and UUID."""
        return {(self.node, uuid): each for uuid, each in self.holdings.items()}

    def granted(self, container: str) -> ContainerShares:
        """Return the shares of a container, of all vendors."""
        names = [found["name"] for found in self.containers]
        if container not in names:
            return ()
        return tuple(share for shares in self.shares.values() for share in shares[names.index(container)])


@dataclass(frozen=True, slots=True)
class Node:
    """A Node at one version."""

    name: str
    devices: Mapping[str, Device]
    """By UUID, of all vendors."""
    cordoned: frozenset[str]
    """UUIDs of devices that take no new Pods."""
    locks: Mapping[str, tuple[str, NodeLock]]
    """Text and meaning, by annotation."""
    problems: tuple[str, ...]
    """Why annotations are unreadable."""
    is_open: bool
    """Whether it is ready and takes Pods without tolerations."""
    allocatable: Mapping[str, int]
    """Extended resources and `pods`."""
    tokens: int
    """How many replicas it gives by tokens; 0 for a Node with a device plugin."""


def read_pod(item: Mapping[str, Any], vendors: Sequence[Vendor]) -> Pod:
    """Return the Pod in *item*."""
    meta, spec = item["metadata"], item.get("spec") or {}
    containers = containers_of(item)
    annotations = meta.get("annotations") or {}
    moved = moved_out(annotations)
    asked = [with_moved(found.get("resources") or {}, moved.get(found["name"])) for found, _ in containers]
    requests = tuple(
        {vendor.key: request for vendor in vendors if (request := vendor.parse_request(resources))}
        for resources in asked
    )
    reader = read_shares(item, vendors)
    allocated_keys = {vendor.key: vendor.allocated_key for vendor in vendors}
    texts = {vendor.key: annotations[vendor.allocated_key] for vendor in vendors if vendor.allocated_key in annotations}
    shares: dict[str, PodShares] = {}
    problems = []
    for key, text in texts.items():
        try:
            shares[key] = reader.granted(allocated_keys[key], key).shares
        except HamiError as error:
            problems.append(f"the grant {text!r} cannot be read: {error}")
    lives = bool(spec.get("nodeName")) and not has_ended(item)
    together = list(_running_together([kind for _, kind in containers], inits_are_done(item))) if lives else []
    return Pod(
        uid=meta.get("uid", ""),
        namespace=meta.get("namespace", ""),
        name=meta["name"],
        node=spec.get("nodeName") or "",
        has_ended=has_ended(item),
        containers=tuple(found for found, _ in containers),
        requests=requests,
        texts=texts,
        shares=shares,
        problems=tuple(problems),
        holdings=_holdings(shares, together),
        total={key: _most(_sum(each, positions) for positions in together) for key, each in shares.items()},
        item=item,
    )


def _running_together(kinds: Sequence[ContainerKind], inits_are_done: bool) -> Iterator[list[int]]:
    """Yield the positions of containers that run at the same time, from one step of the Pod's life to the next."""
    sidecars = []
    for position, kind in enumerate(kinds):
        if kind is ContainerKind.SIDECAR:
            sidecars.append(position)
        elif kind is ContainerKind.INIT and not inits_are_done:
            yield [*sidecars, position]
    yield [*sidecars, *(position for position, kind in enumerate(kinds) if kind is ContainerKind.APP)]


def _sum(shares: PodShares, positions: Sequence[int]) -> Amounts:
    found = [share for position in positions for share in shares[position]]
    return Amounts(len(found), sum(each.memory_mib for each in found), sum(each.core_percent for each in found))


def _most(amounts: Iterator[Amounts]) -> Amounts:
    most = NOTHING
    for amount in amounts:
        most = most.peak(amount)
    return most


def _holdings(shares: Mapping[str, PodShares], together: Sequence[Sequence[int]]) -> dict[str, Holding]:
    found: dict[str, Holding] = defaultdict(Holding)
    for positions in together:
        step: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for position in positions:
            for share in (share for each in shares.values() for share in each[position]):
                step[base_uuid(share.uuid)].append((share.memory_mib, share.core_percent))
        for uuid, amounts in step.items():
            before = found[uuid]
            taken = Amounts(len(amounts), sum(mib for mib, _ in amounts), sum(percent for _, percent in amounts))
            is_whole = any(percent == WHOLE_PERCENT for _, percent in amounts)
            found[uuid] = Holding(
                before.amount.peak(taken),
                before.has_all_compute or is_whole,
                before.is_crowded or (is_whole and len(amounts) > 1),
            )
    return dict(found)


def read_node(item: Mapping[str, Any], vendors: Sequence[Vendor]) -> Node:
    """Return the Node in *item*."""
    meta, spec, status = item["metadata"], item.get("spec") or {}, item.get("status") or {}
    annotations = meta.get("annotations") or {}
    devices: dict[str, Device] = {}
    problems = []
    for key in dict.fromkeys(vendor.register_key for vendor in vendors if vendor.register_key in annotations):
        try:
            devices |= {device.id: device for device in decode_node_devices(annotations[key])}
        except HamiError as error:
            problems.append(f"{key} cannot be read: {error}")
    locks = {}
    for key in {vendor.lock_key for vendor in vendors if vendor.lock_key in annotations}:
        try:
            locks[key] = annotations[key], decode_node_lock(annotations[key])
        except HamiError as error:
            problems.append(f"{key} cannot be read: {error}")
    conditions = {each.get("type"): each.get("status") for each in status.get("conditions") or ()}
    return Node(
        name=meta["name"],
        devices=devices,
        cordoned=frozenset(filter(None, annotations.get(keys.NODE_CORDON, "").replace(" ", "").split(","))),
        locks=locks,
        problems=tuple(problems),
        is_open=conditions.get("Ready") == "True" and not spec.get("unschedulable") and not spec.get("taints"),
        allocatable={
            name: int(amount)
            for name, amount in (status.get("allocatable") or {}).items()
            if ("/" in name or name == "pods") and str(amount).isdigit()
        },
        tokens=sum(device.count for device in devices.values() if device.healthy) if node_kind(item) == DRA else 0,
    )
