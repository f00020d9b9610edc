"""
Read the shares that ResourceClaims give, and the devices of Nodes that share them this way.

A claim names a device of a Node's pool, and the Node's ResourceSlices say which device that is. A MIG instance is shown
as a share of its GPU, as one that an annotation grants. A claim counts once, however many Pods use it; each container
that uses it has a share in the list.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import orjson

from hamicommon.dra.claims import Claim, read_claims
from hamicommon.dra.grants import used_requests
from hamicommon.dra.names import base_request
from hamicommon.dra.slices import Pool, read_slices
from hamicommon.model import Device, Object
from hamicommon.pod.amounts import NOTHING, Amounts
from hamicommon.pod.reading import Container, Pod, read_pod
from hamicommon.vendors.nvidia import KEY as NVIDIA
from hamicommon.wire import keys
from kubectl_hami.answer.shares import PodAllocation, share_of
from kubectl_hami.values.cluster import ClusterSnapshot, Share


def offered_by_claims(cluster: ClusterSnapshot, problems: list[str]) -> dict[str, Pool]:
    """Return the devices in the ResourceSlices, by Node and by name; what cannot be read adds a problem."""
    pools, wrong = read_slices(cluster.slices or ())
    problems += [f"{error}; it is left out" for error in wrong]
    return pools


def as_offered(listed: Mapping[str, Device], node: Object) -> dict[str, Device]:
    """
    Return the devices *listed* in the annotation of *node* with the health that another one gives them.

    The inventory of such a Node says of every device that it is not healthy, so that nobody grants it by annotation.
    """
    text = ((node.get("metadata") or {}).get("annotations") or {}).get(keys.DEVICE_FAULTS, "")
    try:
        faults = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        faults = {}
    ill = faults if isinstance(faults, dict) else {}
    return {uuid: replace(device, healthy=uuid not in ill) for uuid, device in listed.items()}


@dataclass(frozen=True, slots=True)
class _Part:
    """What a claim takes of one device for one of its requests."""

    request: str
    node: str
    device: Device
    taken: Amounts


def claim_allocations(
    cluster: ClusterSnapshot, pools: Mapping[str, Pool], problems: list[str]
) -> Iterator[PodAllocation]:
    """Yield what each claim was given on each Node, with the shares of the containers that use it."""
    claims, wrong = read_claims(cluster.claims or ())
    problems += [f"{error}; it is left out" for error in wrong]
    users = _users(cluster.pods, claims)
    for claim in claims:
        by_node: defaultdict[str, list[_Part]] = defaultdict(list)
        for part in _parts(claim, pools, problems):
            by_node[part.node].append(part)
        for node, parts in by_node.items():
            shares = tuple(
                (uuid, NVIDIA, _share(pod, container, claim, taken))
                for pod, container, request in users[claim.namespace, claim.name]
                for uuid, taken in _sums(part for part in parts if part.request == request).items()
            )
            yield PodAllocation(claim.namespace, node, _sums(parts), shares)


_Use = tuple[Pod, Container, str]
"""A container, its Pod, and the request that it uses."""


def _users(pods: Iterable[Object], claims: Iterable[Claim]) -> defaultdict[tuple[str, str], list[_Use]]:
    """Return who uses each of *claims*, by its namespace and name."""
    requests: Final = {(claim.namespace, claim.name): claim.requests for claim in claims}
    found: defaultdict[tuple[str, str], list[_Use]] = defaultdict(list)
    for item in pods if requests else ():
        pod = read_pod(item)
        for container in pod.containers if pod.holds else ():
            uses = pod.claims.get(container.name, ())
            for claim, request in used_requests(pod.namespace, uses, requests):
                found[pod.namespace, claim].append((pod, container, request))
    return found


def _parts(claim: Claim, pools: Mapping[str, Pool], problems: list[str]) -> Iterator[_Part]:
    for result in claim.results:
        if result.is_admin:
            continue
        listed = pools.get(result.pool, {}).get(result.device)
        if listed is None:
            what = f"device {result.device} of {result.pool}, which no ResourceSlice lists"
            problems.append(f"ResourceClaim {claim} has {what}; it is left out")
            continue
        yield _Part(base_request(result.request), result.pool, listed.device, result.of(listed.device))


def _sums(parts: Iterable[_Part]) -> dict[str, Amounts]:
    """Return what *parts* take of each device: several may be MIG instances of one."""
    found: dict[str, Amounts] = {}
    for part in parts:
        found[part.device.id] = found.get(part.device.id, NOTHING).plus(part.taken)
    return found


def _share(pod: Pod, container: Container, claim: Claim, taken: Amounts) -> Share:
    return replace(share_of(pod, container, taken), claim=claim.name, phase="")
