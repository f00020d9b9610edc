"""
Whether a waiting Pod surely fits on a Node.

A history cannot show everything that a scheduler must heed. So this answers only for plain Pods on plain Nodes, and
finds a place for every container, one after another, as if all ran together. It never says yes wrongly; a no means
nothing.
"""

from collections.abc import Callable, Mapping, Sequence

from hamicommon.model import Device, Request
from hamicommon.pod.amounts import NOTHING, Amounts
from hamicommon.pod.gang import gang_of
from hamicommon.vendors.description import Vendor
from hamicommon.wire import keys
from harness.history.grants import MIG, accepts_type, accepts_uuid, memory_asked
from harness.history.reading import WHOLE_PERCENT, Node, Pod

CHOOSES_A_NODE = ("affinity", "nodeSelector", "topologySpreadConstraints", "resourceClaims", "schedulingGates")
"""Fields of a Pod's spec by which it accepts some Nodes only, or waits."""

AmountsOf = Callable[[str, str], Amounts]
"""Returns what is held of a device, by Node and UUID."""


def is_plain(pod: Pod, vendors: Sequence[Vendor]) -> bool:
    """Return whether *pod*, which waits, asks for nothing but devices of one vendor, wherever they are, and alone."""
    spec = pod.item["spec"]
    names = {name for vendor in vendors for name in vendor.resource_names}
    asked = {
        name
        for container in pod.containers
        for part in (container.get("resources") or {}).values()
        if isinstance(part, Mapping)
        for name in part
    }
    policies = {*keys.AUTHOR_KEYS, *(key for vendor in vendors for key in vendor.author_keys)}
    return (
        "deletionTimestamp" not in pod.item["metadata"]
        and not any(spec.get(name) for name in CHOOSES_A_NODE)
        and gang_of(pod.item) is None
        and not any("persistentVolumeClaim" in volume or "ephemeral" in volume for volume in spec.get("volumes") or ())
        and not any(port.get("hostPort") for container in pod.containers for port in container.get("ports") or ())
        and asked <= names
        and len({vendor for each in pod.requests for vendor in each}) == 1
        and policies.isdisjoint(pod.annotations)
    )


def form_of(pod: Pod, vendors: Sequence[Vendor]) -> str:
    """Return what `fits` looks at of *pod*: Pods of the same form fit on the same Nodes."""
    chosen = (
        pod.annotations.get(key)
        for vendor in vendors
        for key in (vendor.use_uuid_key, vendor.nouse_uuid_key, vendor.use_type_key, vendor.nouse_type_key)
    )
    return repr((pod.requests, *chosen, bool(pod.item["spec"].get("initContainers")), pod.names_claim))


def fits(pod: Pod, node: Node, vendors: Sequence[Vendor], held: AmountsOf, pods: Sequence[Pod]) -> bool:
    """Return whether the plain *pod* surely fits on *node* beside its *pods* and the shares *held* of its devices."""
    if not node.is_open or len(pods) >= node.allocatable.get("pods", 0):
        return False
    [vendor] = {vendor for vendor in vendors for each in pod.requests if vendor.key in each}
    requests = [each[vendor.key] for each in pod.requests if each]
    resource = vendor.resource_names[0]
    counted = sum(_counted(each, vendor) for each in pods)
    if counted + sum(request.count for request in requests) > (node.tokens or node.allocatable.get(resource, 0)):
        return False
    if pod.item["spec"].get("initContainers") if node.tokens else pod.names_claim:
        return False
    devices = [
        device
        for device in node.devices.values()
        if device.healthy
        and device.mode != MIG
        and device.id not in node.cordoned
        and (device.vendor or vendor.key) == vendor.key
        and accepts_uuid(vendor, pod.annotations, device.id)
        and accepts_type(vendor, pod.annotations, device)
    ]
    return _place(requests, devices, {device.id: held(node.name, device.id) for device in devices})


def _counted(pod: Pod, vendor: Vendor) -> int:
    """Return how many replicas the kubelet may count for *pod*, at most."""
    return sum(each[vendor.key].count for each in pod.requests if vendor.key in each)


def _place(requests: Sequence[Request], devices: Sequence[Device], held: dict[str, Amounts]) -> bool:
    """Return whether each request finds its devices when the emptiest ones are tried first."""
    for request in requests:
        by_room = sorted(devices, key=lambda device: held[device.id].memory_mib - device.memory_mib)
        chosen = [device for device in by_room if _has_room(request, device, held[device.id])][: request.count]
        if len(chosen) < request.count:
            return False
        for device in chosen:
            share = Amounts(1, memory_asked(request, device), request.held_core_percent)
            held[device.id] = held.get(device.id, NOTHING).plus(share)
    return True


def _has_room(request: Request, device: Device, held: Amounts) -> bool:
    share = Amounts(1, memory_asked(request, device), request.held_core_percent)
    whole = held.plus(share)
    capacity = Amounts(device.count, device.memory_mib, device.core_percent)
    is_full = held.core_percent >= min(device.core_percent, WHOLE_PERCENT)
    needs_all = share.core_percent == WHOLE_PERCENT
    return whole.peak(capacity) == capacity and not is_full and not (needs_all and held.replicas)
