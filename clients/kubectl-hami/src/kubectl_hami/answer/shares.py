"""
Read the shares of a Pod from its annotations, whichever vendors granted them.

A bound Pod's annotation is authoritative, and one of a Pod without a Node is not: the scheduler reads it the same way.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from hamicommon.model import ContainerShares, Object, PodShares
from hamicommon.pod.amounts import Amounts, base_uuid, sum_shares
from hamicommon.pod.containers import ContainerKind
from hamicommon.pod.reading import Container, Pod, read_pod
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from kubectl_hami.values.cluster import Share

_ALLOCATED: Final = re.compile(r"hami\.io/.+-allocated")
"""The annotation with the granted shares, of any vendor."""


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """What one bound Pod was promised, or one ResourceClaim."""

    namespace: str
    node: str
    amounts: Mapping[str, Amounts]
    """By device."""
    shares: tuple[tuple[str, str, Share], ...]
    """Device, vendor and share, in the order of the containers."""


def allocations(pods: Iterable[Object], problems: list[str]) -> Iterator[PodAllocation]:
    """Yield what each of *pods* was promised that is bound and has not ended; an unreadable annotation is a problem."""
    for item in pods:
        pod = read_pod(item)
        granting = [key for key in pod.annotations if _ALLOCATED.fullmatch(key)]
        if not pod.holds:
            continue
        try:
            granted = [pod.granted(key).shares for key in granting]
        except DecodeError as error:
            problems.append(f"Pod {pod}, {error}; the Pod counts nothing")
            continue
        yield from (_allocation(pod, shares) for shares in granted if any(shares))


def name_of(pod: Object) -> tuple[str, str]:
    """Return namespace and name."""
    metadata = pod.get("metadata") or {}
    return str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")


def is_ready(found: Object) -> bool:
    """Return whether the Pod or Node *found* has the condition Ready."""
    conditions: Iterable[Mapping[str, str]] = (found.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _allocation(pod: Pod, granted: PodShares) -> PodAllocation:
    shares = tuple(
        (uuid, vendor, share_of(pod, container, taken))
        for container, of_container in zip(pod.containers, granted, strict=True)
        for (uuid, vendor), taken in _sums(of_container)
    )
    return PodAllocation(pod.namespace, pod.node, pod.amounts(granted), shares)


def _sums(of_container: ContainerShares) -> Iterator[tuple[tuple[str, str], Amounts]]:
    """Yield device and vendor, and what the container takes of the device: it may hold two parts of one."""
    vendors = {base_uuid(share.uuid): share.type for share in of_container}
    for uuid, taken in sum_shares(of_container).items():
        yield (uuid, vendors[uuid]), taken


def share_of(pod: Pod, container: Container, taken: Amounts) -> Share:
    """Return what *container* has *taken* of a device."""
    return Share(
        namespace=pod.namespace,
        pod=pod.name,
        container=container.name,
        kind=container.kind.value,
        memory_mib=taken.memory_mib,
        core_percent=taken.core_percent,
        holds=not (pod.inits_are_done and container.kind is ContainerKind.INIT),
        phase=pod.annotations.get(keys.BIND_PHASE, ""),
    )
