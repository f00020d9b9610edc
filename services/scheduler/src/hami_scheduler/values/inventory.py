"""
What one Node offers: its devices and what its annotations say about them.

Owns the reading of a v1 Node object into a `NodeInventory`. A part that cannot be read becomes a `Problem`; the other
vendors and devices stay. Neighbours: `hamicommon.wire.node_devices` decodes,
`ledger` counts against what is read here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hami_scheduler.values.vendor import VendorFrame
from hamicommon.model import Device
from hamicommon.quantity import whole
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.node_devices import decode_node_devices
from hamicommon.wire.pair_scores import decode_pair_scores

PairScores = Mapping[str, Mapping[str, int]]
"""Device UUID to device UUID to the rating of their link."""


@dataclass(frozen=True, slots=True)
class NodeInventory:
    """The devices one Node offers."""

    name: str
    devices: tuple[Device, ...] = ()
    """In registered order, vendor by vendor; `vendor` is always set."""
    cordoned: frozenset[str] = frozenset()
    """UUIDs that an operator has closed to new Pods."""
    pair_scores: PairScores = field(default_factory=dict)
    needs_lock: bool = True
    """Whether the Node's device plugin finds the Pod of an allocation by the node lock."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Annotations that a vendor reads to rate the Node."""
    enforcement: str = ""
    """Who limits memory on the Node, and why, as its device plugin says it to people; empty if it does not."""

    def devices_of(self, vendor: str) -> tuple[Device, ...]:
        """Return the devices of one vendor, in registered order."""
        return tuple(device for device in self.devices if device.vendor == vendor)


@dataclass(frozen=True, slots=True)
class Problem:
    """One part of an object that could not be used, and why."""

    key: str
    """The annotation."""
    reason: str


def what_is_read(node: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the parts of *node* that its inventory depends on. Most events of a Node change none of them."""
    metadata = node.get("metadata") or {}
    return metadata.get("annotations"), metadata.get("labels"), (node.get("status") or {}).get("capacity")


def read_inventory(
    node: Mapping[str, Any], vendors: tuple[VendorFrame, ...], previous: NodeInventory | None = None
) -> tuple[NodeInventory, tuple[Problem, ...]]:
    """
    Return what *node*, a v1 Node object, offers, and the parts of it that cannot be used.

    A vendor whose register annotation cannot be decoded keeps the devices of *previous*, so that a bad write does not
    end what runs there.
    """
    metadata = node.get("metadata") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    name = metadata.get("name") or ""
    devices: dict[str, Device] = {}
    problems: list[Problem] = []
    scores: dict[str, Mapping[str, int]] = {}
    needs_lock = True
    for frame in vendors:
        key = frame.vendor.register_key or frame.count_resource
        try:
            listed = frame.offers(node) if frame.offers else registered(node, key)
        except DecodeError as error:
            problems.append(Problem(key, str(error)))
            listed = previous.devices_of(frame.key) if previous else ()
        if frame.may_find_owners and listed:
            needs_lock = not all(device.finds_owners for device in listed)
        for device in listed:
            flaw = _flaw(device, devices)
            if flaw:
                problems.append(Problem(key, flaw))
            else:
                # Only the vendor knows what a mode means.
                mode = device.mode if frame.mode_key or frame.offers else ""
                devices[device.id] = replace(device, vendor=frame.key, mode=mode, finds_owners=False)
        if listed and frame.pair_scores_key:
            scores.update(_read_pair_scores(annotations, frame, problems))
    inventory = NodeInventory(
        name=name,
        devices=tuple(devices.values()),
        cordoned=frozenset(uuid.strip() for uuid in annotations.get(keys.NODE_CORDON, "").split(",") if uuid.strip()),
        pair_scores=scores,
        needs_lock=needs_lock,
        enforcement=annotations.get(keys.NODE_ENFORCEMENT, ""),
        notes={key: annotations[key] for frame in vendors for key in frame.node_keys if key in annotations},
    )
    return inventory, tuple(problems)


def registered(node: Mapping[str, Any], key: str) -> tuple[Device, ...]:
    """
    Return the devices that annotation *key* of *node* lists, none without the annotation.

    Raises:
        DecodeError: it cannot be read.
    """
    text = node_annotation(node, key)
    return () if text is None else decode_node_devices(text)


def node_annotation(node: Mapping[str, Any], key: str) -> str | None:
    """Return the annotation *key* of *node*, None if it is missing."""
    found: str | None = ((node.get("metadata") or {}).get("annotations") or {}).get(key)
    return found


def node_capacity(node: Mapping[str, Any], resource: str) -> int:
    """Return the capacity of *resource* that the kubelet of *node* reports, 0 without it."""
    amounts = (node.get("status") or {}).get("capacity") or {}
    return max(0, whole(amounts.get(resource, "0")) or 0) if resource else 0


def _flaw(device: Device, known: Mapping[str, Device]) -> str:
    """Return what makes *device* unusable, empty if it is usable."""
    if not device.id:
        return f"device {device.index} has an empty id; it must be a UUID"
    if any(separator in device.id for separator in ",:;"):
        return f"device {device.id!r} has a separator of the Pod annotations in its id"
    if device.id in known:
        return f"device {device.id} is listed twice; the first entry counts"
    for amount in ("count", "memory_mib", "core_percent"):
        if getattr(device, amount) < 0:
            return f"device {device.id} has {amount} {getattr(device, amount)}, which must be 0 or more"
    return ""


def _read_pair_scores(
    annotations: Mapping[str, str], frame: VendorFrame, problems: list[Problem]
) -> Mapping[str, Mapping[str, int]]:
    text = annotations.get(frame.pair_scores_key)
    if not text:
        return {}
    try:
        return decode_pair_scores(text)
    except DecodeError as error:
        problems.append(Problem(frame.pair_scores_key, str(error)))
        return {}


def count_resource(node: Mapping[str, Any], frame: VendorFrame) -> int:
    """Return how many replicas of the vendor *frame* the kubelet of *node* offers."""
    amounts = (node.get("status") or {}).get("allocatable") or {}
    return max(0, whole(amounts.get(frame.count_resource, "0")) or 0)
