"""
Decide HAMi's way which shares an Allocate call is about: the pending Pod's next ones.

Pure. The kubelet does not say whom it allocates for, so the Node's lock or a search names the Pod, and containers are
served in order.
Neighbours: `lock` does the reading and writing around these decisions.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/util.go (GetPendingPod),
https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/util.go
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hami_device_plugin.decide.inventory import device_of_replica
from hami_device_plugin.decide.pods import Pod, PodContainer
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, PodShares
from hamicommon.wire import keys
from hamicommon.wire.pod_devices import shares_by_container

_PENDING_PHASES = frozenset({keys.BIND_PHASE_ALLOCATING, keys.BIND_PHASE_SUCCESS})
"""`success` too: a Pod of several containers may be half allocated."""


class PendingError(HamiError):
    """There is nothing to allocate, or not what the kubelet asks for."""


@dataclass(frozen=True, slots=True)
class PreferredRequest:
    """One container's part of a GetPreferredAllocation call."""

    available: tuple[str, ...]
    must_include: tuple[str, ...]
    size: int


def is_pending(pod: Pod, node: str) -> bool:
    """
    Say whether *pod* is bound to *node* and waits for its devices.
    """
    return (
        pod.phase == "Pending"
        and keys.BIND_TIME in pod.annotations
        and pod.annotations.get(keys.BIND_PHASE) in _PENDING_PHASES
        and pod.annotations.get(keys.POD_NODE) == node
    )


def take_next(shares: PodShares) -> tuple[int, ContainerShares, PodShares]:
    """
    Return the place of the next container with shares, these, and what is left after them.

    Raises:
        PendingError: nothing is left.
    """
    place = next((i for i, granted in enumerate(shares) if granted), None)
    if place is None:
        raise PendingError("no pending device allocation found: every container has its devices already")
    return place, shares[place], (*shares[:place], (), *shares[place + 1 :])


def chosen_by_kubelet(shares: ContainerShares, replicas: Sequence[str]) -> ContainerShares:
    """
    Return *shares* moved to the devices the kubelet picked, amounts unchanged.
    """
    return tuple(
        replace(share, uuid=device_of_replica(replica)) for share, replica in zip(shares, replicas, strict=True)
    )


def preferred(shares: PodShares, requests: Sequence[PreferredRequest]) -> list[list[str] | None]:
    """
    Return per request the replicas of the devices that *shares* grant; None where it cannot be met.

    The n-th request is about the n-th container with shares. Replicas that must be included come first.
    """
    pending = [granted for granted in shares if granted]
    return [
        _prefer(pending[number], request) if number < len(pending) else None for number, request in enumerate(requests)
    ]


def is_allocated(annotation: str, vendor_keys: Iterable[str]) -> bool:
    """
    Say whether a to-allocate *annotation* has nothing left, in HAMi's way: it names no vendor.
    """
    return not any(key in annotation for key in vendor_keys)


def recipient(allocated: PodShares, place: int, containers: Sequence[PodContainer]) -> PodContainer:
    """
    Return the container that the list at *place* belongs to.

    That is the one in the same place, unless *allocated*, the Pod's whole allocation, would then give devices to a
    container that asks for none: its writer lost the empty places.

    Raises:
        PendingError: there is no such container.
    """
    placed = shares_by_container(allocated, len(containers), [bool(container.requested) for container in containers])
    holders = [container for container, granted in zip(containers, placed, strict=True) if granted]
    number = sum(bool(granted) for granted in allocated[:place])
    if number >= len(holders):
        raise PendingError(f"list {place} of the allocation belongs to none of the Pod's {len(containers)} containers")
    return holders[number]


def _prefer(granted: ContainerShares, request: PreferredRequest) -> list[str] | None:
    if len(granted) < request.size:
        return None
    must, free = list(request.must_include), list(request.available)
    included: list[str] = []
    others: list[str] = []
    for share in granted[: request.size]:
        for source, result in ((must, included), (free, others)):
            match = next((replica for replica in source if device_of_replica(replica) == share.uuid), None)
            if match is not None:
                source.remove(match)
                result.append(match)
                break
        else:
            return None
    return included + others
