"""
Decide which shares a call of the kubelet is about, from the Pods that wait for devices.

The kubelet does not say for which Pod it calls. Under the Node's lock HAMi assumes the pending Pod, and serves its
containers in order. Identity allocation needs a guess for a hint only, and guesses by the kubelet's checkpoint.
Neighbours: `lock` reads and writes around these decisions, `calls` passes the hint on.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/util/util.go (GetPendingPod),
https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/util.go
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

from hami_device_plugin.decide.allocate.pods import AllocationError, granted_shares
from hami_device_plugin.decide.replicas.ids import device_of_replica
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, PodShares
from hamicommon.pod.reading import Container, Pod
from hamicommon.vendors.description import Vendor
from hamicommon.wire import keys

_PENDING_PHASES = frozenset({keys.BIND_PHASE_ALLOCATING, keys.BIND_PHASE_SUCCESS})
"""`success` too: some containers of the Pod may still wait."""


class PendingError(HamiError):
    """No Pod waits for what the kubelet asks."""


def is_pending(pod: Pod, node: str) -> bool:
    """Return whether *pod* is bound to *node* and waits for its devices."""
    return (
        not pod.has_started
        and keys.BIND_TIME in pod.annotations
        and pod.annotations.get(keys.BIND_PHASE) in _PENDING_PHASES
        and pod.annotations.get(keys.POD_NODE) == node
    )


def what_is_left(granted: PodShares, left: PodShares | None, served: int | None) -> tuple[PodShares, bool]:
    """
    Return what of *granted* is left to hand out, and whether *left*, which the Pod's annotation says is left, agrees.

    The Pod's author may have written *left*; None if it cannot be read. *served* containers have their devices already.
    If that is unknown (None), as beside a checkpoint that cannot be read, *left* says it, by being the end of
    *granted*, list by list and in order.

    Raises:
        PendingError: nothing says how many containers are served.
    """
    places = [place for place, shares in enumerate(granted) if shares]
    waiting = [shares for shares in left or () if shares]
    first = len(places) - len(waiting)
    is_end = left is not None and first >= 0 and waiting == [granted[place] for place in places[first:]]
    if left is not None and is_end and served in (None, first):
        return left, True
    if served is None:
        raise PendingError("that is not what is left of its grant")
    emptied = places[:served]
    return tuple(() if place in emptied else shares for place, shares in enumerate(granted)), False


def next_place(granted: PodShares, left: PodShares) -> int:
    """
    Return the place in *granted* of the list that the next container gets; *left* is the end of it.

    Raises:
        PendingError: nothing is left.
    """
    places = [place for place, shares in enumerate(granted) if shares]
    waiting = sum(bool(shares) for shares in left)
    if not waiting:
        raise PendingError("no pending device allocation found: every container has its devices already")
    return places[len(places) - waiting]


def without_next(left: PodShares) -> PodShares:
    """Return *left* with its first list emptied, as HAMi's plugin records that a container was served."""
    place = next(i for i, granted in enumerate(left) if granted)
    return (*left[:place], (), *left[place + 1 :])


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
    pods: Iterable[Pod],
    node: str,
    vendor: Vendor,
    served: Collection[tuple[str, str]],
    requests: Sequence[PreferredRequest],
) -> list[list[str] | None]:
    """
    Return, for each request, replicas of the devices of a container that waits on *node*; None if none fits.

    *pods* are in the order in which the watch showed them, in which the kubelet admits them too. *served* are the
    containers that have devices, by Pod's UID and name, as the kubelet's checkpoint lists them. The kubelet admits one
    Pod at a time and serves its containers in order: so a Pod of which some containers have devices is next, and else
    the first that has none. After a restart the kubelet may admit in another order. That is harmless: replicas are
    tokens, and the shares come from the Pod that the kubelet names later.
    """
    begun = {uid for uid, _ in served}
    lists: list[ContainerShares] = []
    for pod in sorted(pods, key=lambda pod: pod.uid not in begun):
        if pod.phase == "Pending":
            with suppress(AllocationError):
                granted = granted_shares(pod, node, vendor)
                lists += [shares for name, shares in granted.items() if (pod.uid, name) not in served]
    waiting = [shares for shares in lists if shares]
    answers = []
    for request in requests:
        place = next((place for place, shares in enumerate(waiting) if len(shares) == request.size), None)
        answers.append(None if place is None else _prefer(waiting.pop(place), request))
    return answers


def is_allocated(annotation: str, vendor_keys: Iterable[str]) -> bool:
    """Return whether a to-allocate *annotation* has nothing left. HAMi's rule: it contains no vendor key."""
    return not any(key in annotation for key in vendor_keys)


def recipient(pod: Pod, allocated: PodShares, place: int, vendor: Vendor) -> Container:
    """
    Return the container of *pod* that a call serves with the list at *place* of *allocated*, its whole allocation.

    It is the container at that place if there is a list for each. Otherwise it is the next one that asks, because the
    kubelet calls for those in the Pod's order, init containers first, whichever of them the writer left out.

    Raises:
        PendingError: there is no such container.
    """
    owners = pod.assigned(allocated, vendor.allocated_key, vendor.key).owners
    if owners.get(place) == place:
        return pod.containers[place]
    asking = [container for container in pod.containers if container.asks(vendor.key)]
    number = sum(bool(granted) for granted in allocated[:place])
    if number >= len(asking):
        count = len(pod.containers)
        raise PendingError(f"list {place} of the allocation belongs to none of the Pod's {count} containers")
    return asking[number]


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
