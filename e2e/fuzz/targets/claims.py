"""
A ResourceClaim and the Pods that use it: a grant that fits the Node's devices, or an error that says why not.

An input has claims and Pods. What is granted is never more than the devices have, MIG instances never overlap, and the
record says the same.
"""

import itertools
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

import orjson

from hami_device_plugin.decide.allocate.capacity import CapacityError, claim_use
from hami_device_plugin.decide.dra.grant import ClaimError, claim_grant
from hami_device_plugin.decide.dra.ledger import check_ledger
from hami_device_plugin.decide.dra.users import check_users, sharing_by_claims
from hami_device_plugin.decide.mig.geometry import overlap
from hamicommon.dra.claims import decode_claim
from hamicommon.dra.grants import ClaimGrant, decode_record, encode_record
from hamicommon.dra.names import DRIVER, device_name
from hamicommon.dra.partitions import Partition
from hamicommon.dra.slices import Description, OfferedDevice
from hamicommon.model import Device, MigPlacement, MigProfile
from hamicommon.pod.reading import Pod, read_pod
from hamicommon.pod.shape import POD, check_shape
from hamicommon.wire.errors import DecodeError

INPUTS: Final = 5_000
IS_JSON: Final = True
_NODE: Final = "n1"
_MOST: Final = 8
"""Of the claims and of the Pods of an input."""


def check(data: bytes) -> None:
    """Grant the claims of an input one after the other, and check who uses them."""
    try:
        scene = orjson.loads(data)
    except orjson.JSONDecodeError:
        return
    if not isinstance(scene, dict):
        return
    pods = list(_pods(scene.get("pods")))
    offered = _offered()
    devices = {device.id: device for device in offered.values() if isinstance(device, Device)}
    granted: dict[str, ClaimGrant] = {}
    for item in _objects(scene.get("claims")):
        with suppress(DecodeError, ClaimError, CapacityError):
            grant = claim_grant(decode_claim(item), _NODE, offered)
            assert decode_record(encode_record(grant)).is_same(grant)
            assert all(grant.shares(request) for request in grant.requests)
            check_ledger(grant, granted.values(), {}, devices)
            granted[grant.uid] = grant
            check_users(pods, grant.name, {(grant.namespace, grant.name): grant.requests})
    places = [result.instance for grant in granted.values() for result in grant.results if result.instance]
    for one, other in itertools.combinations(places, 2):
        assert one.gpu_uuid != other.gpu_uuid or not overlap(one.placement, other.placement)
    for uuid, device in devices.items():
        amounts = [claim_use(grant).amounts[uuid] for grant in granted.values() if uuid in claim_use(grant).amounts]
        assert sum(each.memory_mib for each in amounts) <= device.memory_mib
        assert sum(each.core_percent for each in amounts) <= device.core_percent
        assert sum(each.replicas for each in amounts) <= device.count
    for pod, container, shares in sharing_by_claims(pods, granted.values()):
        assert container in pod.containers
        assert all(share.uuid in devices for share in shares)


def seeds() -> Iterator[bytes]:
    """Return claims of one share, of two devices, of a whole device and of alternatives, and Pods that use them."""
    half = {"memory": "8Gi", "cores": "50", "replicas": "1"}
    share, whole = _result("gpu", 8, consumedCapacity=half, shareID="s-1"), _result("gpu", 9)
    for results in (
        [share],
        [share, _result("gpu", 9, consumedCapacity={f"{DRIVER}/{name}": text for name, text in half.items()})],
        [whole],
        [_result("gpu/small", 8, consumedCapacity=half)],
        [share | {"adminAccess": True}],
        [{"request": "gpu", "driver": DRIVER, "pool": _NODE, "device": name} for name in list(_offered())[2:4]],
    ):
        claims = [_claim("claim", results), _claim("other", [share])]
        yield orjson.dumps({"claims": claims, "pods": [_pod({"name": "a"}), _pod({"name": "a", "request": "gpu"})]})
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}
    extended = {"resourceClaimName": "claim", "requestMappings": [mapping]}
    pod = _pod() | {"status": {"extendedResourceClaimStatus": extended}}
    yield orjson.dumps({"claims": [_claim("claim", [share])], "pods": [pod]})


def _result(request: str, minor: int, **more: Any) -> dict[str, Any]:
    return {"request": request, "driver": DRIVER, "pool": _NODE, "device": device_name(minor), **more}


def _claim(name: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "uid": "u"}]}
    return {"metadata": {"namespace": "default", "name": name, "uid": f"uid-{name}"}, "status": status}


def _pod(*claims: dict[str, str]) -> dict[str, Any]:
    entries = [{"name": "a", "resourceClaimName": "claim"}]
    container = {"name": "main", "resources": {"claims": list(claims)}}
    metadata = {"namespace": "default", "name": "p", "uid": "u"}
    return {"metadata": metadata, "spec": {"resourceClaims": entries, "containers": [container]}}


def _pods(found: Any) -> Iterator[Pod]:
    for item in _objects(found):
        with suppress(DecodeError):
            check_shape(item, POD, "Pod")
            yield read_pod(item)


def _objects(found: Any) -> list[dict[str, Any]]:
    return [each for each in found[:_MOST] if isinstance(each, dict)] if isinstance(found, list) else []


@cache
def _offered() -> Mapping[str, Device | Partition]:
    """Return two devices that are shared, and the places for instances of two sizes on a third."""
    shared = {
        device_name(minor): Device(f"GPU-736e040b-3a71-a5e7-2235-eb9c1bd980a{minor}", 4, 16384, 100, "NVIDIA A10")
        for minor in (8, 9)
    }
    gpu = OfferedDevice(Device("GPU-736e040b-3a71-a5e7-2235-eb9c1bd980aa", 4, 24576, 100, "NVIDIA A30"), Description(7))
    profiles = (
        MigProfile("1g.6gb", 5888, 25, 1, tuple(MigPlacement(start, 1) for start in range(4))),
        MigProfile("2g.12gb", 11904, 50, 2, (MigPlacement(0, 2), MigPlacement(2, 2))),
    )
    parts = [Partition(gpu, profile, place, 14) for profile in profiles for place in profile.placements]
    return shared | {one.name: one for one in parts}
