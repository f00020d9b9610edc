"""
What a Pod holds of each device, from the shares of its containers.

Owns Kubernetes' formula for containers that do not all run at once (KEP-753). An ordinary init container runs with the
sidecars before it. App containers run together, with all sidecars. The Pod takes the largest of these sums. Knows no
vendor and no Node.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from hamicommon.model import ContainerShares, PodShares
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.mig.suffix import decode_mig_suffix

AMOUNT_LIMIT = 2**31 - 1
"""The most that HAMi can write; a larger amount is read as this."""


class ContainerKind(Enum):
    """When a container runs, relative to its siblings."""

    INIT = "init"
    """Alone, after the init containers before it, beside the sidecars before it."""
    SIDECAR = "sidecar"
    """An init container with `restartPolicy: Always`: from its turn on until the Pod ends (KEP-753)."""
    APP = "app"
    """Beside every other app container and every sidecar."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What shares take of one device."""

    replicas: int = 0
    memory_mib: int = 0
    core_percent: int = 0

    def plus(self, other: "Taken") -> "Taken":
        """Return the sum."""
        return Taken(
            self.replicas + other.replicas, self.memory_mib + other.memory_mib, self.core_percent + other.core_percent
        )

    def peak(self, other: "Taken") -> "Taken":
        """Return the larger of each quantity."""
        return Taken(
            max(self.replicas, other.replicas),
            max(self.memory_mib, other.memory_mib),
            max(self.core_percent, other.core_percent),
        )


NOTHING = Taken()


def amounts_over_time(
    kinds: Sequence[ContainerKind], shares: PodShares, *, inits_are_done: bool = False
) -> dict[str, Taken]:
    """
    Return the most that containers of *kinds* with *shares* take from each device at any time.

    Entries of *shares* beyond *kinds* count as app containers. With *inits_are_done* ordinary init containers count
    nothing.
    """
    sidecars: dict[str, Taken] = {}
    peaks: dict[str, Taken] = {}
    apps: dict[str, Taken] = {}
    for position, container in enumerate(shares):
        kind = kinds[position] if position < len(kinds) else ContainerKind.APP
        if kind is ContainerKind.INIT and inits_are_done:
            continue
        for uuid, amount in sum_shares(container).items():
            running = sidecars.get(uuid, NOTHING).plus(amount)
            if kind is ContainerKind.APP:
                apps[uuid] = apps.get(uuid, NOTHING).plus(amount)
            elif kind is ContainerKind.SIDECAR:
                sidecars[uuid] = running
            peaks[uuid] = peaks.get(uuid, NOTHING).peak(running if kind is not ContainerKind.APP else NOTHING)
    return {uuid: peak.peak(sidecars.get(uuid, NOTHING).plus(apps.get(uuid, NOTHING))) for uuid, peak in peaks.items()}


def sum_shares(container: ContainerShares) -> dict[str, Taken]:
    """Return what the shares of one container take, by device."""
    sums: dict[str, Taken] = {}
    for share in container:
        if share.uuid:
            amount = Taken(1, _bounded(share.memory_mib), _bounded(share.core_percent))
            uuid = base_uuid(share.uuid)
            sums[uuid] = sums.get(uuid, NOTHING).plus(amount)
    return sums


def base_uuid(uuid: str) -> str:
    """
    Return the device of a share's UUID, which HAMi 2.5 to 2.9 wrote with a MIG slot behind it.

    >>> base_uuid("GPU-a[1-3]")
    'GPU-a'
    """
    if "[" not in uuid:
        return uuid
    try:
        return decode_mig_suffix(uuid)[0]
    except DecodeError:
        return uuid


def _bounded(amount: int) -> int:
    return min(max(amount, 0), AMOUNT_LIMIT)


def inits_are_done(pod: Mapping[str, Any]) -> bool:
    """Return whether *pod* has ordinary init containers and all of them have succeeded."""
    spec = pod.get("spec") or {}
    names = {c.get("name") for c in spec.get("initContainers") or () if c.get("restartPolicy") != "Always"}
    ended = {
        status.get("name")
        for status in (pod.get("status") or {}).get("initContainerStatuses") or ()
        if ((status.get("state") or {}).get("terminated") or {}).get("exitCode") == 0
    }
    return bool(names) and names <= ended


def is_over(pod: Mapping[str, Any]) -> bool:
    """Return whether *pod* has ended, so that it holds nothing although the object still exists."""
    return (pod.get("status") or {}).get("phase") in {"Succeeded", "Failed"}


def containers_of(pod: Mapping[str, Any]) -> tuple[tuple[Mapping[str, Any], ContainerKind], ...]:
    """Return the containers of *pod* with their kinds, init containers first, in Pod order."""
    spec = pod.get("spec") or {}
    found = []
    for container in spec.get("initContainers") or ():
        is_sidecar = container.get("restartPolicy") == "Always"
        found.append((container, ContainerKind.SIDECAR if is_sidecar else ContainerKind.INIT))
    found += [(container, ContainerKind.APP) for container in spec.get("containers") or ()]
    return tuple(found)
