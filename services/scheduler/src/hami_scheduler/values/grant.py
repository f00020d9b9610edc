"""
What one Pod holds: its shares, and what they take from each device.

Neighbours: `hamicommon.held` adds up the containers of a Pod, `ledger` adds grants up, `reservation` keeps those that
are not bound yet.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hami_scheduler.values.request import ContainerRequest, read_containers
from hami_scheduler.values.rules import Notes
from hami_scheduler.values.vendor import VendorFrame
from hamicommon.held import NOTHING, ContainerKind, Taken, amounts_over_time, inits_are_done, is_over, sum_shares
from hamicommon.model import MigAllocation, PodShares
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.mig.allocations import decode_mig_allocations
from hamicommon.wire.pod_devices import decode_pod_devices, shares_by_container


@dataclass(frozen=True, slots=True)
class Grant:
    """What one Pod holds on one Node."""

    uid: str
    namespace: str
    name: str
    node: str
    shares: Mapping[str, PodShares]
    """Per vendor key: one entry per container, in Pod order."""
    amounts: Mapping[str, Taken]
    """Per device UUID: what the Pod takes from it."""
    vendors: Mapping[str, str]
    """Per device UUID: the vendor key it was granted under."""
    mig: tuple[MigAllocation, ...] = ()
    """The known MIG instances among the shares."""
    notes: Mapping[str, Notes] = field(default_factory=dict)
    """Per vendor key: annotations for that vendor alone; without an entry if there are none."""
    is_settled: bool = True
    """Whether the device plugin has set the devices up as the notes say."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations that the bind writes beside the shares; empty once the Pod is bound."""
    priority: int = 0
    """Of the bound Pod; only Pods of lower priority may be evicted for another."""
    unasked: tuple[str, ...] = ()
    """Vendor keys of shares that no container of the bound Pod asks for; they count all the same."""


def sums_by_container(shares: Mapping[str, PodShares]) -> dict[tuple[int, str], tuple[str, Taken]]:
    """Return vendor key and amount granted, by the position of the container and the UUID of the device."""
    sums: dict[tuple[int, str], tuple[str, Taken]] = {}
    for vendor, containers in shares.items():
        for place, container in enumerate(containers):
            for uuid, amount in sum_shares(container).items():
                _, before = sums.get((place, uuid), (vendor, NOTHING))
                sums[place, uuid] = vendor, before.plus(amount)
    return sums


def make_grant(
    identity: tuple[str, str, str],
    node: str,
    kinds: Sequence[ContainerKind],
    shares: Mapping[str, PodShares],
    *,
    mig: tuple[MigAllocation, ...] = (),
    inits_are_done: bool = False,
    notes: Mapping[str, Notes] | None = None,
    is_settled: bool = True,
    annotations: Mapping[str, str] | None = None,
    priority: int = 0,
) -> Grant:
    """Return the grant of the Pod *identity* (uid, namespace, name) with *shares* per vendor on *node*."""
    amounts: dict[str, Taken] = {}
    vendors: dict[str, str] = {}
    for vendor, vendor_shares in shares.items():
        for uuid, amount in amounts_over_time(kinds, vendor_shares, inits_are_done=inits_are_done).items():
            amounts[uuid] = amounts.get(uuid, NOTHING).plus(amount)
            vendors[uuid] = vendor
    uid, namespace, name = identity
    said = {vendor: words for vendor, words in (notes or {}).items() if words}
    # Without notes `is_settled` has no effect; keep it constant, so that equal grants stay equal.
    settled = is_settled or not said
    return Grant(uid, namespace, name, node, shares, amounts, vendors, mig, said, settled, annotations or {}, priority)


def read_shares(
    pod: Mapping[str, Any], vendors: tuple[VendorFrame, ...], containers: Sequence[ContainerRequest]
) -> dict[str, PodShares]:
    """
    Return the shares in the annotations of *pod*, per vendor key, one entry per container.

    Raises:
        DecodeError: the annotation of a vendor cannot be read. As in HAMi, the Pod then counts nothing.
    """
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    found: dict[str, PodShares] = {}
    for frame in vendors:
        text = annotations.get(frame.vendor.allocated_key)
        if text is None:
            continue
        try:
            shares = decode_pod_devices(text)
        except DecodeError as error:
            raise DecodeError(f"{frame.vendor.allocated_key}, {error.place}", error.reason) from error
        found[frame.key] = shares_by_container(shares, len(containers), _requesting(frame.key, containers, shares))
    return found


def _requesting(vendor: str, containers: Sequence[ContainerRequest], shares: PodShares) -> list[bool] | None:
    """Return which containers ask *vendor* for devices, None if that cannot assign *shares* to containers."""
    asks = [any(request.vendor == vendor for request in container.requests) for container in containers]
    return asks if sum(map(bool, shares)) <= sum(asks) else None


def places(mig: Iterable[MigAllocation]) -> list[tuple[str, str, int, int]]:
    """Return the places of instances: device, profile, start, size."""
    return sorted((one.gpu_uuid, one.profile, one.placement.start, one.placement.size) for one in mig)


def keys_read(vendors: Iterable[VendorFrame]) -> frozenset[str]:
    """Return the annotations that the grant of a bound Pod depends on."""
    found = {key for frame in vendors for key in (frame.vendor.allocated_key, *frame.pod_keys)}
    return frozenset({*found, keys.MIG_ALLOCATIONS, keys.BIND_PHASE})


def read_grant(pod: Mapping[str, Any], vendors: tuple[VendorFrame, ...]) -> Grant | None:
    """
    Return what *pod* holds, None if it holds nothing: it is not bound, has ended, or was never granted a device.

    Allocation annotations of a Pod without `spec.nodeName` are ignored.

    Raises:
        DecodeError: the Pod is bound and its annotations cannot be read.
    """
    node = (pod.get("spec") or {}).get("nodeName")
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    if not node or is_over(pod) or not any(frame.vendor.allocated_key in annotations for frame in vendors):
        return None
    containers = read_containers(pod, vendors)
    shares = read_shares(pod, vendors, containers)
    if not any(share.uuid for per_pod in shares.values() for per_container in per_pod for share in per_container):
        return None
    metadata = pod["metadata"]
    identity = (metadata.get("uid") or "", metadata.get("namespace") or "default", metadata.get("name") or "")
    kinds = tuple(container.kind for container in containers)
    grant = make_grant(
        identity,
        node,
        kinds,
        shares,
        mig=read_mig(pod),
        inits_are_done=inits_are_done(pod),
        notes={frame.key: frame.read_notes(annotations) for frame in vendors if frame.pod_keys and frame.key in shares},
        is_settled=annotations.get(keys.BIND_PHASE) != keys.BIND_PHASE_ALLOCATING,
        priority=(pod.get("spec") or {}).get("priority") or 0,
    )
    unasked = _unasked(containers, shares)
    return replace(grant, unasked=unasked) if unasked else grant


def _unasked(containers: Sequence[ContainerRequest], shares: Mapping[str, PodShares]) -> tuple[str, ...]:
    """Return the vendors with a device in *shares* that none of *containers* asks."""
    asked = {request.vendor for container in containers for request in container.requests}
    return tuple(
        vendor
        for vendor, of_pod in shares.items()
        if vendor not in asked and any(share.uuid for of_container in of_pod for share in of_container)
    )


def read_mig(pod: Mapping[str, Any]) -> tuple[MigAllocation, ...]:
    """
    Return the MIG instances *pod* was granted, none if its annotation is missing or cannot be read.

    A share without its instance closes the device to other Pods, so an unreadable annotation is no error.
    """
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    try:
        return decode_mig_allocations(annotations.get(keys.MIG_ALLOCATIONS, ""))
    except DecodeError:
        return ()
