"""
Decide which containers use the requests of ResourceClaims that are prepared on this Node, and give them their shares.

All containers that use a request have one region, in the directory of the request. So its use is that of all of them.
A request with MIG instances has none.
Neighbours: `hamicommon.dra.grants` reads what was prepared, `pods` has the Pods.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from hami_monitor.decide.containers import ContainerKey
from hami_monitor.decide.grants import Grant
from hami_monitor.decide.pods import MonitoredPod
from hamicommon.dra.grants import ClaimGrant, requests_of, used_requests
from hamicommon.model import MigAllocation, Share
from hamicommon.pod.variables import DEFAULT_PRIORITY

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UsedRequest:
    """The request of a claim that a container uses."""

    claim: str
    """Its name, in the Pod's namespace."""
    request: str
    key: ContainerKey
    """The key of its directory: the claim's UID, and the request."""


def request_grants(grants: Iterable[ClaimGrant]) -> dict[ContainerKey, Grant]:
    """Return what each prepared request of *grants* has, by the key of its directory."""
    return {
        ContainerKey(grant.uid, request): Grant(grant.shares(request), _instances(grant, request))
        for grant in grants
        for request in grant.requests
    }


def _instances(grant: ClaimGrant, request: str) -> tuple[MigAllocation, ...]:
    results = [result for result in grant.results if result.request == request]
    return tuple(
        replace(result.instance, device_index=index)
        for index, result in enumerate(results)
        if result.instance is not None
    )


def used_by(pods: Iterable[MonitoredPod], grants: Iterable[ClaimGrant]) -> dict[ContainerKey, UsedRequest]:
    """Return the request of *grants* that each container of *pods* uses; one that uses several is not started."""
    by_name = {(grant.namespace, grant.name): grant for grant in grants}
    requests = requests_of(by_name.values())
    found = {}
    for pod in pods if requests else ():
        for container, uses in pod.claims.items():
            for claim, request in used_requests(pod.namespace, uses, requests)[:1]:
                key = ContainerKey(by_name[pod.namespace, claim].uid, request)
                found[ContainerKey(pod.uid, container)] = UsedRequest(claim, request, key)
    return found


def with_priorities(
    grants: Mapping[ContainerKey, Grant], used: Mapping[ContainerKey, UsedRequest], pods: Iterable[MonitoredPod]
) -> dict[ContainerKey, Grant]:
    """Return *grants* of requests, each with the highest priority (the lowest number) of the containers that use it."""
    found = dict(grants)
    priorities = {ContainerKey(pod.uid, name): number for pod in pods for name, number in pod.priorities.items()}
    for request in {request.key for request in used.values()} & found.keys():
        users = [container for container, one in used.items() if one.key == request]
        lowest = min(priorities.get(container, DEFAULT_PRIORITY) for container in users)
        found[request] = replace(found[request], priority=lowest)
    return found


def with_claims(
    pods: Iterable[MonitoredPod], used: Mapping[ContainerKey, UsedRequest], grants: Mapping[ContainerKey, Grant]
) -> tuple[MonitoredPod, ...]:
    """Return *pods* with the shares and instances of the requests that are *used*; one that has ended holds none."""
    found = []
    for pod in pods:
        held = {
            container: grants[used[key].key]
            for container in pod.claims
            if (key := ContainerKey(pod.uid, container)) in used and pod.holds
        }
        shares = {**pod.shares, **{container: grant.shares for container, grant in held.items()}}
        instances = [(container, one) for container, grant in held.items() for one in grant.instances]
        found.append(replace(pod, shares=shares, mig_allocations=(*pod.mig_allocations, *instances)) if held else pod)
    return tuple(found)


def charged(
    pods: Iterable[MonitoredPod], used: Mapping[ContainerKey, UsedRequest], grants: Mapping[ContainerKey, Grant]
) -> dict[str, tuple[Share, ...]]:
    """
    Return the shares of claims whose time each of *pods* is charged with, by UID.

    Pods that use the same request hold one share. It is charged to the one that was bound first and has not ended;
    the others are charged with nothing.
    """
    known = sorted(pods, key=lambda pod: (pod.share_time.began_seconds if pod.share_time else math.inf, pod.uid))
    found: dict[str, tuple[Share, ...]] = {}
    charged_for: set[ContainerKey] = set()
    for pod in known:
        for container in pod.claims if pod.holds else ():
            request = used.get(ContainerKey(pod.uid, container))
            if request is not None:
                shares = () if request.key in charged_for else grants[request.key].shares
                found[pod.uid] = (*found.get(pod.uid, ()), *shares)
                charged_for.add(request.key)
    return found


def by_container(values: Mapping[ContainerKey, T], used: Mapping[ContainerKey, UsedRequest]) -> dict[ContainerKey, T]:
    """Return what *values* has of requests, by the containers that use them."""
    return {container: values[request.key] for container, request in used.items() if request.key in values}
