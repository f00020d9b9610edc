"""
What one Node offers: its devices and what its annotations say about them.

Owns the reading of a v1 Node object into a `NodeInventory`. A part that cannot be read becomes a `Problem`; the other
vendors and devices stay. Neighbours: `hamicommon.wire.node_devices` decodes,
`ledger` counts against what is read here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from hami_scheduler.values.vendor import VendorRules
from hamicommon.dra.names import DRA
from hamicommon.dra.slices import Pool
from hamicommon.model import Device
from hamicommon.vendors import nvidia
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.node_devices import decode_node_devices
from hamicommon.wire.pair_scores import decode_pair_scores
from hamicommon.wire.quantity import whole

UNKNOWN = -1
"""In `NodeInventory.replicas`: the kubelet does not know the resource."""
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
    vendor_annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations that a vendor reads to rate the Node."""
    enforcement: str = ""
    """Who limits memory on the Node, and why, as its device plugin says it to people; empty if it does not."""
    replicas: Mapping[str, int] | None = None
    """
    Per resource that the kubelet counts: how many healthy ones it offers, `UNKNOWN` if it does not know the resource.

    None if there is no kubelet to ask, as for the Nodes an autoscaler imagines.
    """
    rejecting: frozenset[str] = frozenset()
    """Resources for which the kubelet rejected a Pod that fitted by all we know."""
    silent: tuple[str, ...] = ()
    """Resources without which devices are listed: their device plugin does not run, so they are not offered."""
    lost: Mapping[str, str] = field(default_factory=dict)
    """
    Per UUID of an unhealthy device whose plugin withdraws the replicas that the device's Pods hold: their resource.
    """

    gives_claims: bool = False
    """Whether NVIDIA devices reach the kubelet by ResourceClaims."""
    has_tokens: bool = False
    """Whether kube-scheduler gives tokens of the Node to Pods that ask for NVIDIA devices by resources."""
    is_mapped: bool = False
    """Whether a DeviceClass maps the count of NVIDIA devices, in the whole cluster."""

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
    status = node.get("status") or {}
    return metadata.get("annotations"), metadata.get("labels"), status.get("capacity"), status.get("allocatable")


def read_inventory(
    node: Mapping[str, Any], vendors: tuple[VendorRules, ...], previous: NodeInventory | None = None
) -> tuple[NodeInventory, tuple[Problem, ...]]:
    """
    Return what *node*, a v1 Node object, lists, and the parts of it that cannot be used.

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
    lost: dict[str, str] = {}
    for rules in vendors:
        key = rules.vendor.register_key or rules.count_resource
        try:
            listed = rules.read_devices(node) if rules.read_devices else registered(node, key)
        except DecodeError as error:
            problems.append(Problem(key, str(error)))
            listed = previous.devices_of(rules.key) if previous else ()
        if rules.may_find_owners and listed:
            needs_lock = not all(device.finds_owners for device in listed)
        for device in listed:
            flaw = _flaw(device, devices)
            if flaw:
                problems.append(Problem(key, flaw))
            else:
                # Only the vendor knows what a mode means.
                mode = device.mode if rules.mode_key or rules.read_devices else ""
                devices[device.id] = replace(device, vendor=rules.key, mode=mode, finds_owners=False)
                if rules.may_find_owners and device.finds_owners and not device.healthy:
                    lost[device.id] = rules.count_resource
        text = annotations.get(rules.pair_scores_key)
        if listed and text:
            try:
                scores.update(decode_pair_scores(text))
            except DecodeError as error:
                problems.append(Problem(rules.pair_scores_key, str(error)))
    inventory = NodeInventory(
        name=name,
        devices=tuple(devices.values()),
        cordoned=frozenset(uuid.strip() for uuid in annotations.get(keys.NODE_CORDON, "").split(",") if uuid.strip()),
        pair_scores=scores,
        needs_lock=needs_lock,
        enforcement=annotations.get(keys.NODE_ENFORCEMENT, ""),
        vendor_annotations={
            key: annotations[key] for rules in vendors for key in rules.node_keys if key in annotations
        },
        replicas=_replicas(node, vendors),
        lost=lost,
        gives_claims=annotations.get(keys.NODE_KIND) == DRA,
    )
    return inventory, tuple(problems)


def offered(inventory: NodeInventory, vendors: Iterable[VendorRules]) -> NodeInventory:
    """
    Return what a Node that lists *inventory* offers to Pods: without the devices whose plugin does not run.

    NVIDIA devices of a Node that gives them by ResourceClaims are not offered, unless the Node has tokens.

    A plugin that stops leaves its inventory behind. The kubelet shows whether it runs: HAMi remembers whether it did,
    which does not survive a restart of the scheduler.
    Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/device.go (`CheckHealth`)
    """
    if inventory.gives_claims and not inventory.has_tokens:
        inventory = replace(inventory, devices=tuple(each for each in inventory.devices if each.vendor != nvidia.KEY))
    listed = {device.vendor for device in inventory.devices}
    replicas = inventory.replicas or {}
    silent = {
        rules.key: rules.kubelet_resources[0]
        for rules in vendors
        if rules.key in listed and rules.kubelet_resources and replicas.get(rules.kubelet_resources[0], 0) <= 0
    }
    if not silent:
        return inventory
    devices = tuple(device for device in inventory.devices if device.vendor not in silent)
    return replace(inventory, devices=devices, silent=tuple(silent.values()))


def with_tokens(inventory: NodeInventory, tokens: int, vendors: Iterable[VendorRules]) -> NodeInventory:
    """
    Return *inventory* with so many *tokens* in the place of the replicas that a kubelet counts.

    There is one for each replica, whether or not its device is healthy, so no failed device withdraws any.
    """
    counts = {rules.count_resource: tokens for rules in vendors if rules.key == nvidia.KEY}
    return replace(inventory, has_tokens=True, replicas={**(inventory.replicas or {}), **counts}, lost={})


def with_claimable(inventory: NodeInventory, pool: Pool, listed: Iterable[Device]) -> NodeInventory:
    """
    Return *inventory* with the devices that its Node gives by ResourceClaims, closed to Pods.

    They are there so that what claims and the Pods from before hold of them is counted. Those that are shared are as
    *pool* has them, and GPUs of which it has instances are as the Node has *listed* them.
    """
    cut = {one.instance.gpu_uuid for one in pool.values() if one.instance is not None}
    shared = (one.device for one in pool.values() if one.instance is None)
    devices = {device.id: device for device in inventory.devices}
    for device in (*shared, *(gpu for gpu in listed if gpu.id in cut)):
        devices.setdefault(device.id, replace(device, vendor=nvidia.KEY, healthy=False))
    return replace(inventory, devices=tuple(devices.values()))


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


def _replicas(node: Mapping[str, Any], vendors: Iterable[VendorRules]) -> dict[str, int]:
    """
    Return `NodeInventory.replicas` of *node*.

    A kubelet admits a Pod without devices if it does not know a resource that the Pod asks. Only a count that no
    plugin registers may be unknown.
    """
    amounts = (node.get("status") or {}).get("allocatable") or {}
    found: dict[str, int] = {}
    for rules in vendors:
        for name in (*rules.kubelet_resources, rules.count_resource):
            if name in amounts:
                found[name] = max(0, whole(amounts[name]) or 0)
            elif name in rules.kubelet_resources:
                found[name] = UNKNOWN
    return found
