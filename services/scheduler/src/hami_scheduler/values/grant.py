"""
What one Pod holds: its shares, and what they take from each device.

Neighbours: `hamicommon.pod` reads a Pod and adds its containers up, `ledger` adds grants up, `reservation` keeps those
that are not bound yet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hami_scheduler.values.constraints import VendorAnnotations
from hami_scheduler.values.request import Replicas, read_replicas
from hami_scheduler.values.vendor import VendorRules, resources_counted
from hamicommon.model import MigAllocation, PodShares
from hamicommon.pod.amounts import NOTHING, Amounts, amounts_over_time, sum_shares
from hamicommon.pod.containers import ContainerKind, has_ended
from hamicommon.pod.lists import Granted
from hamicommon.pod.reading import NOTHING_GRANTED, Pod, read_pod
from hamicommon.vendors import nvidia
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError


@dataclass(frozen=True, slots=True)
class Grant:
    """
    What one Pod, or one ResourceClaim, holds on one Node.

    A Pod that was never granted a device may hold replicas of the kubelet alone.
    """

    uid: str
    namespace: str
    name: str
    node: str
    kinds: Sequence[ContainerKind] = field(compare=False)
    """Of its containers, in Pod order."""
    shares: Mapping[str, PodShares]
    """Per vendor key: one entry per container, in Pod order."""
    mig: tuple[MigAllocation, ...] = ()
    """The known MIG instances among the shares."""
    inits_are_done: bool = field(default=False, compare=False)
    vendor_annotations: Mapping[str, VendorAnnotations] = field(default_factory=dict)
    """Per vendor key: annotations for that vendor alone; without an entry if there are none."""
    is_set_up: bool = True
    """Whether the device plugin has set the devices up as the vendor annotations say; without any it always has."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations that the bind writes beside the shares; empty once the Pod is bound."""
    priority: int = 0
    """Of the bound Pod; only Pods of lower priority may be evicted for another."""
    granted_unrequested: tuple[str, ...] = ()
    """Vendor keys of shares that no container of the bound Pod asks for; they count all the same."""
    replicas: Replicas = ()
    """What its kubelet counts, for the Pod's whole life."""
    claimed: Mapping[str, Amounts] = field(default_factory=dict)
    """Per device UUID: what a ResourceClaim takes from it. Such a grant has no Pod, and lasts as long as the claim."""
    amounts: Mapping[str, Amounts] = field(init=False)
    """Per device UUID: what is taken from it."""
    vendors: Mapping[str, str] = field(init=False)
    """Per device UUID: the vendor key it was granted under."""

    def __post_init__(self) -> None:
        amounts = dict(self.claimed)
        vendors = dict.fromkeys(self.claimed, nvidia.KEY)
        for vendor, shares in self.shares.items():
            for uuid, amount in amounts_over_time(self.kinds, shares, inits_are_done=self.inits_are_done).items():
                amounts[uuid] = amounts.get(uuid, NOTHING).plus(amount)
                vendors[uuid] = vendor
        object.__setattr__(self, "amounts", amounts)
        object.__setattr__(self, "vendors", vendors)
        object.__setattr__(self, "is_set_up", self.is_set_up or not self.vendor_annotations)

    @property
    def is_claim(self) -> bool:
        """Whether a ResourceClaim holds it, and not a Pod."""
        return bool(self.claimed)

    @property
    def holder(self) -> str:
        """Who holds it, for people: `namespace/name` of a Pod, and the kind before that of a claim."""
        return f"{'ResourceClaim ' if self.is_claim else ''}{self.namespace}/{self.name}"


def sums_by_container(shares: Mapping[str, PodShares]) -> dict[tuple[int, str], tuple[str, Amounts]]:
    """Return vendor key and amount granted, by the position of the container and the UUID of the device."""
    sums: dict[tuple[int, str], tuple[str, Amounts]] = {}
    for vendor, containers in shares.items():
        for place, container in enumerate(containers):
            for uuid, amount in sum_shares(container).items():
                _, before = sums.get((place, uuid), (vendor, NOTHING))
                sums[place, uuid] = vendor, before.plus(amount)
    return sums


def places(mig: Iterable[MigAllocation]) -> list[tuple[str, str, int, int]]:
    """Return the places of instances: device, profile, start, size."""
    return sorted((one.gpu_uuid, one.profile, one.placement.start, one.placement.size) for one in mig)


def keys_read(vendors: Iterable[VendorRules]) -> frozenset[str]:
    """Return the annotations that the grant of a bound Pod depends on."""
    found = {key for rules in vendors for key in (rules.vendor.allocated_key, *rules.pod_keys)}
    return frozenset({*found, keys.MIG_ALLOCATIONS, keys.BIND_PHASE})


def read_grant(item: Mapping[str, Any], vendors: tuple[VendorRules, ...]) -> Grant | None:
    """
    Return what the Pod in *item* holds; None if it is not bound, has ended, or asks for nothing of *vendors*.

    Allocation annotations of a Pod without `spec.nodeName` are ignored.

    Raises:
        DecodeError: the Pod is bound and its annotations cannot be read. As in HAMi, it then counts nothing.
    """
    annotations = (item.get("metadata") or {}).get("annotations") or {}
    granting = [rules for rules in vendors if rules.vendor.allocated_key in annotations]
    if not granting:
        return read_replicas_alone(item, vendors)
    pod = read_pod(item, vendors)
    if not pod.holds:
        return None
    granted = {rules.key: pod.granted(rules.vendor.allocated_key, rules.key) for rules in granting}
    shares = {vendor: found.shares for vendor, found in granted.items()}
    if not any(share.uuid for per_pod in shares.values() for per_container in per_pod for share in per_container):
        return read_replicas_alone(item, vendors)
    said = {rules.key: rules.read_vendor_annotations(annotations) for rules in granting if rules.pod_keys}
    return Grant(
        pod.uid,
        pod.namespace,
        pod.name,
        pod.node,
        pod.kinds,
        shares,
        mig=read_mig(pod, granted.get(nvidia.KEY, NOTHING_GRANTED)),
        inits_are_done=pod.inits_are_done,
        vendor_annotations={vendor: texts for vendor, texts in said.items() if texts},
        is_set_up=annotations.get(keys.BIND_PHASE) != keys.BIND_PHASE_ALLOCATING,
        priority=pod.priority,
        granted_unrequested=_granted_unrequested(pod, shares),
        replicas=read_replicas(item, resources_counted(vendors)),
    )


def read_replicas_alone(pod: Mapping[str, Any], vendors: tuple[VendorRules, ...]) -> Grant | None:
    """Return what the kubelet of the bound *pod* counts, whatever its annotations say; None if that is nothing."""
    node = (pod.get("spec") or {}).get("nodeName")
    if not node or has_ended(pod):
        return None
    replicas = read_replicas(pod, resources_counted(vendors))
    if not replicas:
        return None
    metadata = pod["metadata"]
    uid, namespace, name = metadata.get("uid") or "", metadata.get("namespace") or "default", metadata.get("name") or ""
    return Grant(uid, namespace, name, node, (), {}, priority=pod["spec"].get("priority") or 0, replicas=replicas)


def _granted_unrequested(pod: Pod, shares: Mapping[str, PodShares]) -> tuple[str, ...]:
    """Return the vendors with a device in *shares* that no container of *pod* asks."""
    asked = {request.vendor for container in pod.containers for request in container.requests}
    return tuple(
        vendor
        for vendor, of_pod in shares.items()
        if vendor not in asked and any(share.uuid for of_container in of_pod for share in of_container)
    )


def read_mig(pod: Pod, granted: Granted) -> tuple[MigAllocation, ...]:
    """
    Return the MIG instances among what *pod* was *granted*, none if its annotation is missing or cannot be read.

    A share without its instance closes the device to other Pods, so an unreadable annotation is no error.
    """
    try:
        return pod.mig_allocations(granted)
    except DecodeError:
        return ()
