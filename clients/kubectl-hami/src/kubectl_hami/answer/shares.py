"""
Read the shares of a Pod from its annotations, whichever vendors granted them.

A bound Pod's annotation is authoritative, and one of a Pod without a Node is not: the scheduler reads it the same way.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hamicommon.held import (
    ContainerKind,
    Taken,
    amounts_over_time,
    base_uuid,
    containers_of,
    inits_are_done,
    is_over,
    sum_shares,
)
from hamicommon.model import ContainerShares
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.pod_devices import decode_pod_devices, shares_by_container
from kubectl_hami.values.cluster import Share
from kubectl_hami.values.seen import Object

_ALLOCATED: Final = re.compile(r"hami\.io/.+-allocated")
"""The annotation with the granted shares, of any vendor."""


@dataclass(frozen=True, slots=True)
class Held:
    """What one bound Pod holds."""

    pod: Object
    node: str
    amounts: Mapping[str, Taken]
    """By device."""
    shares: tuple[tuple[str, str, Share], ...]
    """Device, vendor and share, in the order of the containers."""


def held(pods: Iterable[Object], problems: list[str]) -> Iterator[Held]:
    """Yield what each of *pods* holds that is bound and has not ended; an unreadable annotation adds a problem."""
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        annotations = (pod.get("metadata") or {}).get("annotations") or {}
        if not node or is_over(pod):
            continue
        for key in annotations:
            if _ALLOCATED.fullmatch(key):
                found = _held(pod, node, key, annotations[key], problems)
                if found is not None:
                    yield found


def name_of(pod: Object) -> tuple[str, str]:
    """Return namespace and name."""
    metadata = pod.get("metadata") or {}
    return str(metadata.get("namespace") or "default"), str(metadata.get("name") or "")


def asks_for_devices(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the extended resources in the limits of *container*: those with a domain that is not Kubernetes' own."""
    limits = (container.get("resources") or {}).get("limits") or {}
    return {
        name: str(amount)
        for name, amount in limits.items()
        if "/" in name and not name.partition("/")[0].endswith("kubernetes.io")
    }


def _held(pod: Object, node: str, key: str, text: str, problems: list[str]) -> Held | None:
    containers = containers_of(pod)
    namespace, name = name_of(pod)
    try:
        decoded = decode_pod_devices(text)
    except DecodeError as error:
        problems.append(f"Pod {namespace}/{name}, {key}: {error}; the Pod counts nothing")
        return None
    asking = [bool(asks_for_devices(container)) for container, _ in containers]
    given = shares_by_container(decoded, len(containers), asking)
    if not any(given):
        return None
    done = inits_are_done(pod)
    phase = ((pod.get("metadata") or {}).get("annotations") or {}).get(keys.BIND_PHASE, "")
    kinds = [kind for _, kind in containers]
    shares = tuple(
        (uuid, vendor, _share(namespace, name, container, kind, taken, done, phase))
        for (container, kind), of_container in zip(containers, given, strict=True)
        for (uuid, vendor), taken in _sums(of_container)
    )
    return Held(pod, node, amounts_over_time(kinds, given, inits_are_done=done), shares)


def _sums(of_container: ContainerShares) -> Iterator[tuple[tuple[str, str], Taken]]:
    """Yield device and vendor, and what the container takes of the device: it may hold two parts of one."""
    vendors = {base_uuid(share.uuid): share.type for share in of_container}
    for uuid, taken in sum_shares(of_container).items():
        yield (uuid, vendors[uuid]), taken


def _share(
    namespace: str, pod: str, container: Mapping[str, Any], kind: ContainerKind, taken: Taken, done: bool, phase: str
) -> Share:
    return Share(
        namespace=namespace,
        pod=pod,
        container=str(container.get("name") or ""),
        kind=kind.value,
        memory_mib=taken.memory_mib,
        core_percent=taken.core_percent,
        holds=not (done and kind is ContainerKind.INIT),
        phase=phase,
    )
