"""
Decide whether a Pod has the ResourceClaim without which a Node that gives devices by claims would start it bare.

kube-scheduler makes and allocates the claim between filter and bind, if a DeviceClass maps the count of devices, and
the Pod's status names it. Without such a DeviceClass it makes none, and binds all the same.
Neighbours: `serve.bind` reads both objects, `bind_writer` writes.
"""

from collections.abc import Mapping
from typing import Any

from hamicommon.dra.claims import decode_claim
from hamicommon.wire.errors import DecodeError


def claim_name(pod: Mapping[str, Any]) -> str:
    """Return the name of the claim for the devices that *pod* asks for by resources; empty if it names none."""
    found = ((pod.get("status") or {}).get("extendedResourceClaimStatus") or {}).get("resourceClaimName")
    return found if isinstance(found, str) else ""


def claim_problem(pod: Mapping[str, Any], item: Mapping[str, Any] | None, node: str) -> str | None:
    """
    Return why *item*, the claim that *pod* names, gives it no devices on *node*; None if it does.

    *item* is None if there is no such claim.
    """
    name, uid = claim_name(pod), pod["metadata"].get("uid")
    if not name:
        return (
            "kube-scheduler has made no ResourceClaim for the devices of the Pod: it knows no DeviceClass that maps "
            "their count to tokens"
        )
    if item is None:
        return f"ResourceClaim {name}, which the Pod names, does not exist"
    try:
        claim = decode_claim(item)
    except DecodeError as error:
        return str(error)
    if uid not in claim.pod_uids:
        return f"ResourceClaim {name}, which the Pod names, is not reserved for it"
    if not claim.tokens or any(token.pool != node for token in claim.tokens):
        return f"ResourceClaim {name}, which the Pod names, has no tokens of node {node}"
    return None
