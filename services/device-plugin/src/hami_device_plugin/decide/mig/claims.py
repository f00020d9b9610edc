"""
Read which MIG instances the Pods of this Node were promised, and what the plugin writes to that.

The scheduler promises a GPU, a profile and a placement. The plugin adds which instance it became.
Neighbours: `allocate.pods` reads the Pod, `hamicommon.wire.mig` the annotation.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device/nvidia/mig_allocations.go
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hami_device_plugin.decide.allocate.pods import AllocationError
from hami_device_plugin.decide.mig.geometry import overlap
from hami_device_plugin.decide.mig.journal import Entry, Owner
from hamicommon.model import ContainerShares, MigAllocation, PodShares
from hamicommon.pod.reading import Pod
from hamicommon.vendors import nvidia
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.mig import decode_mig_allocations, encode_mig_allocations
from hamicommon.wire.pod_devices import decode_pod_devices


@dataclass(frozen=True, slots=True)
class Claim:
    """One instance promised to a Pod, or to a prepared ResourceClaim."""

    owner: Owner
    allocation: MigAllocation


@dataclass(frozen=True, slots=True)
class Claims:
    """What the Pods of one Node that have not ended were promised, and its prepared ResourceClaims."""

    promised: tuple[Claim, ...] = ()
    owner_uids: frozenset[str] = frozenset()
    """UIDs of every Pod that has not ended and every prepared ResourceClaim, with or without instances."""
    granted_uids: frozenset[str] = frozenset()
    """UIDs of the Pods with shares."""
    users: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names of the Pods and ResourceClaims with shares of a GPU, by its UUID."""
    unclear: Mapping[str, str] = field(default_factory=dict)
    """Why it is unknown which instances of a GPU are used, by its UUID."""


def owner_of(pod: Pod) -> Owner:
    """Return *pod* as an owner."""
    return Owner(pod.uid, pod.namespace, pod.name)


def read_claims(pods: Iterable[Pod], allocated_key: str) -> Claims:
    """Return what *pods*, all on this Node, were promised; *allocated_key* is the annotation of their shares."""
    promised: list[Claim] = []
    uids, granted = set[str](), set[str]()
    users: dict[str, frozenset[str]] = {}
    unclear: dict[str, str] = {}
    for pod in pods:
        if pod.has_ended:
            continue
        uids.add(pod.uid)
        granted_of = Counter(share.uuid for shares in _shares(pod, allocated_key) for share in shares)
        allocations, problem = _allocations(pod)
        placed = Counter(allocation.gpu_uuid for allocation in allocations)
        if granted_of or placed:
            granted.add(pod.uid)
        promised += (Claim(owner_of(pod), allocation) for allocation in allocations)
        for uuid in granted_of.keys() | placed.keys():
            users[uuid] = users.get(uuid, frozenset()) | {str(pod)}
        for uuid, count in granted_of.items():
            if placed[uuid] < count:
                unclear[uuid] = f"Pod {pod} holds {count} shares of it, {problem or f'{placed[uuid]} with a placement'}"
    return Claims(tuple(promised), frozenset(uids), frozenset(granted), users, unclear)


def reservations(pod: Pod, container: str, shares: ContainerShares, allocated_key: str) -> tuple[MigAllocation, ...]:
    """
    Return the instances promised to *container* of *pod*, one for each of *shares* in their order.

    Raises:
        AllocationError: the annotation is missing or unreadable, or does not match the shares.
    """
    where = f"Pod {pod}, container {container}: annotation {keys.MIG_ALLOCATIONS}"
    allocations, problem = _allocations(pod)
    if problem:
        raise AllocationError(f"{where} {problem}")
    index = _written_index(pod, container, _shares(pod, allocated_key), allocated_key)
    mine = sorted((found for found in allocations if found.container_index == index), key=lambda one: one.device_index)
    if [found.gpu_uuid for found in mine] != [share.uuid for share in shares]:
        raise AllocationError(
            f"{where} places {len(mine)} instances for container {index} on "
            f"{', '.join(found.gpu_uuid for found in mine) or 'no GPU'}; annotation {allocated_key} grants "
            f"{', '.join(share.uuid for share in shares)}"
        )
    for number, one in enumerate(mine):
        for other in mine[:number]:
            if one.gpu_uuid == other.gpu_uuid and overlap(one.placement, other.placement):
                raise AllocationError(f"{where} places two instances in the same slices of GPU {one.gpu_uuid}")
    return tuple(mine)


def with_identities(text: str, realized: Mapping[tuple[int, int], Entry]) -> str:
    """
    Return the annotation *text* with the identity of the *realized* instances, by container and device index.

    Raises:
        DecodeError: *text* is unreadable.
    """
    return encode_mig_allocations(_with_identity(found, realized) for found in decode_mig_allocations(text))


def same_promise(one: str, other: str) -> bool:
    """
    Return whether two annotations promise the same, whatever instances they name.

    An unreadable one promises nothing that could be the same.
    """
    try:
        first, second = decode_mig_allocations(one), decode_mig_allocations(other)
    except DecodeError:
        return False
    return [_bare(found) for found in first] == [_bare(found) for found in second]


def _bare(allocation: MigAllocation) -> MigAllocation:
    return replace(allocation, mig_uuid=None, gpu_instance_id=None, compute_instance_id=None)


def _with_identity(allocation: MigAllocation, realized: Mapping[tuple[int, int], Entry]) -> MigAllocation:
    entry = realized.get((allocation.container_index, allocation.device_index))
    return allocation if entry is None else entry.named(allocation)


def _allocations(pod: Pod) -> tuple[tuple[MigAllocation, ...], str]:
    """Return the instances promised to *pod*, and what is wrong with the annotation, empty if nothing is."""
    text = pod.annotations.get(keys.MIG_ALLOCATIONS)
    if not text:
        return (), "is missing: was the Pod bound by a scheduler of HAMi 2.10 or newer?"
    try:
        return decode_mig_allocations(text), ""
    except DecodeError as error:
        return (), f"is unreadable: {error}"


def _shares(pod: Pod, allocated_key: str) -> PodShares:
    try:
        return decode_pod_devices(pod.annotations.get(allocated_key, ""))
    except DecodeError:
        return ()


def _written_index(pod: Pod, container: str, written: PodShares, allocated_key: str) -> int:
    """
    Return the index by which the writer of the shares means *container*; -1 if it has none.

    Placements are counted as the lists of shares are.
    """
    owners = pod.assigned(written, allocated_key, nvidia.KEY).owners
    places = [place for place, owner in owners.items() if pod.containers[owner].name == container]
    return places[0] if len(places) == 1 else -1
