"""
Decide which of this Node's annotations to write.

Owns the inventory, the scores of its links, the handshake that schedulers before 2.8 wait for, and the mark of identity
allocation.
Neighbours: `inventory` makes the devices, `decide.probe.links` the scores, `kube` writes the difference.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from hami_device_plugin.decide.inventory import with_doubled_vendor
from hamicommon.dra.names import PLUGIN
from hamicommon.model import Device, Moment
from hamicommon.vendors import nvidia
from hamicommon.vendors.description import Vendor
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.handshake import Handshake, HandshakeLayout, HandshakeState, encode_handshake
from hamicommon.wire.node_devices import decode_node_devices, encode_node_devices
from hamicommon.wire.pair_scores import encode_pair_scores
from hamicommon.wire.version import JSON_SINCE, WireVersion


@dataclass(frozen=True, slots=True)
class Announced:
    """What a Node offers, and how it works."""

    devices: tuple[Device, ...]
    is_identity: bool
    """Whether allocations find their Pod by identity."""
    device_list: str
    """How devices reach containers."""
    enforcement: str
    """Who limits their memory."""
    kind: str = PLUGIN
    """How they reach the kubelet."""
    pair_scores: Mapping[str, Mapping[str, int]] | None = None
    """The scores of the links; None leaves those of the Node as they are, as in HAMi."""


def announcement(
    announced: Announced, vendor: Vendor, *, version: WireVersion, carried: Mapping[str, str], now: datetime
) -> dict[str, str | None]:
    """
    Return the changes to the Node's annotations, of which *carried* are present; empty if all are right.

    None removes an annotation. *now* has a time zone.
    """
    is_old = version < JSON_SINCE
    offered = [replace(device, finds_owners=announced.is_identity) for device in announced.devices]
    wanted: dict[str, str | None] = {
        vendor.register_key: encode_node_devices(with_doubled_vendor(offered) if is_old else offered, version),
        keys.NODE_DEVICE_LIST: announced.device_list,
        keys.NODE_ENFORCEMENT: announced.enforcement,
        keys.NODE_KIND: announced.kind if announced.kind != PLUGIN else None,
        keys.OLD_NODE_ALLOCATION: None,
    }
    if announced.pair_scores is not None:
        wanted[nvidia.PAIR_SCORES_KEY] = encode_pair_scores(announced.pair_scores)
    if is_old and not carried.get(vendor.handshake_key, "").startswith(HandshakeState.REPORTED.value):
        wanted[vendor.handshake_key] = _reported(now)
    return {key: value for key, value in wanted.items() if carried.get(key) != value}


def withdrawal(carried: Mapping[str, str], vendor: Vendor, version: WireVersion) -> dict[str, str | None]:
    """
    Return the changes to the Node's annotations when this plugin stops; *carried* are present.

    The inventory stays, as HAMi's does, with devices that are not healthy: the kubelet fails a Pod that comes now, and
    the Node's status says so only up to 10 s later. The mark in it is removed, because the next plugin may need the
    node lock. An inventory without the mark belongs to another plugin and stays.
    """
    ours = (keys.NODE_DEVICE_LIST, keys.NODE_ENFORCEMENT, keys.NODE_KIND)
    gone: dict[str, str | None] = {key: None for key in ours if key in carried}
    try:
        devices = decode_node_devices(carried.get(vendor.register_key, "[]"))
    except DecodeError:
        return gone
    if not any(device.finds_owners for device in devices):
        return gone
    left = [replace(each, finds_owners=False, healthy=False) for each in devices]
    return {**gone, vendor.register_key: encode_node_devices(left, version)}


def _reported(now: datetime) -> str:
    """Return the handshake of plugins up to HAMi 2.7.1, with a time in Go's form."""
    rest = f".{now.microsecond:06d} {now:%z} {now.tzname()}"
    time = Moment.of(now.replace(microsecond=0, tzinfo=None))
    return encode_handshake(Handshake(HandshakeState.REPORTED, time, HandshakeLayout.GO, rest=rest))
