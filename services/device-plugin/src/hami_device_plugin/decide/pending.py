"""
Decide which shares a call of the kubelet is about, from the Pods that wait for devices.

The kubelet does not say for which Pod it calls. Under the Node's lock HAMi assumes the pending Pod, and serves its
containers in order. Identity allocation uses the same rule for a hint only.
Neighbours: `lock` reads and writes around these decisions, `calls` passes the hint on.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/util.go (GetPendingPod),
https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/util.go
"""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from hami_device_plugin.decide.pods import Pod, PodContainer
from hami_device_plugin.decide.replicas.ids import device_of_replica
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, PodShares
from hamicommon.vendor import Vendor
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.pod_devices import decode_pod_devices, shares_by_container

_PENDING_PHASES = frozenset({keys.BIND_PHASE_ALLOCATING, keys.BIND_PHASE_SUCCESS})
"""`success` too: some containers of the Pod may still wait."""


class PendingError(HamiError):
    """No Pod waits for what the kubelet asks."""


def is_pending(pod: Pod, node: str) -> bool:
    """
    Return whether *pod* is bound to *node* and waits for its devices.
    """
    return (
        pod.phase == "Pending"
        and keys.BIND_TIME in pod.annotations
        and pod.annotations.get(keys.BIND_PHASE) in _PENDING_PHASES
        and pod.annotations.get(keys.POD_NODE) == node
    )


def take_next(shares: PodShares) -> tuple[int, ContainerShares, PodShares]:
    """
    Return the place of the next container with shares, its shares, and the shares left.

    Raises:
        PendingError: nothing is left.
    """
    place = next((i for i, granted in enumerate(shares) if granted), None)
    if place is None:
        raise PendingError("no pending device allocation found: every container has its devices already")
    return place, shares[place], (*shares[:place], (), *shares[place + 1 :])


def chosen_by_kubelet(shares: ContainerShares, replicas: Sequence[str]) -> ContainerShares:
    """
    Return *shares* on the devices of *replicas*, amounts unchanged.
    """
    return tuple(
        replace(share, uuid=device_of_replica(replica)) for share, replica in zip(shares, replicas, strict=True)
    )


def preferred(shares: PodShares, requests: Sequence[PreferredRequest]) -> list[list[str] | None]:
    """
    Return, for each request, the replicas of the devices in *shares*; None if there are too few.

    The n-th request is about the n-th container with shares. Replicas that must be included come first.
    """
    pending = [granted for granted in shares if granted]
    return [
        _prefer(pending[number], request) if number < len(pending) else None for number, request in enumerate(requests)
    ]


def hint(
    pods: Iterable[Pod], node: str, vendor: Vendor, requests: Sequence[PreferredRequest]
) -> list[list[str] | None]:
    """
    Return, for each request, replicas of the devices of a Pod that waits on *node*; None if no Pod fits.

    The request may be for another Pod. That is harmless: replicas are tokens, and the shares come from the Pod that
    the kubelet names later.
    """
    waiting = [pod for pod in pods if is_pending(pod, node)]
    lists: list[ContainerShares] = []
    for pod in sorted(waiting, key=lambda pod: (pod.annotations.get(keys.BIND_TIME, ""), pod.uid)):
        with suppress(DecodeError):
            lists += decode_pod_devices(pod.annotations.get(vendor.to_allocate_key, ""))
    return [_first_fit(lists, request) for request in requests]


def is_allocated(annotation: str, vendor_keys: Iterable[str]) -> bool:
    """
    Return whether a to-allocate *annotation* has nothing left. HAMi's rule: it contains no vendor key.
    """
    return not any(key in annotation for key in vendor_keys)


def recipient(allocated: PodShares, place: int, containers: Sequence[PodContainer]) -> PodContainer:
    """
    Return the container that the list at *place* of *allocated*, the Pod's whole allocation, belongs to.

    It is the container at that place, unless that gives shares to a container that requests none. In that case the
    writer left out the empty lists.

    Raises:
        PendingError: there is no such container.
    """
    placed = shares_by_container(allocated, len(containers), [bool(container.requested) for container in containers])
    holders = [container for container, granted in zip(containers, placed, strict=True) if granted]
    number = sum(bool(granted) for granted in allocated[:place])
    if number >= len(holders):
        raise PendingError(f"list {place} of the allocation belongs to none of the Pod's {len(containers)} containers")
    return holders[number]


def _first_fit(lists: Sequence[ContainerShares], request: PreferredRequest) -> list[str] | None:
    fitting = (preferred((granted,), (request,))[0] for granted in lists if len(granted) == request.size)
    return next((answer for answer in fitting if answer is not None), None)


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
