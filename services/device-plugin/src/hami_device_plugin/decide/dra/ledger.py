"""
Decide whether the Node's devices have what a claim was given: the last line behind kube-scheduler's allocator.

Two schedulers, or one that restarts, may give a device twice. The claim that comes later is refused then.
Neighbours: `allocate.capacity` does the same for Pods with HAMi's annotation, whose grants count here too.
"""

from collections.abc import Iterable, Mapping

from hami_device_plugin.decide.allocate.capacity import CapacityError, claim_use
from hami_device_plugin.decide.mig.geometry import overlap, shown
from hamicommon.dra.grants import ClaimGrant
from hamicommon.model import Device, MigAllocation
from hamicommon.pod.amounts import NOTHING, Amounts

_ADVICE = "It was allocated more than there is: delete its Pod, so that it is allocated again"


def check_ledger(
    grant: ClaimGrant,
    others: Iterable[ClaimGrant],
    of_pods: Mapping[str, Amounts],
    devices: Mapping[str, Device],
) -> None:
    """
    Check that *devices*, by UUID, have *grant* beside the *others* and what Pods hold by their annotations.

    Raises:
        CapacityError: one does not; the message names it, the claim and who was first.
    """
    before = [other for other in others if other.uid != grant.uid]
    _check_places(grant, before)
    taken_before = [(other, claim_use(other).amounts) for other in before]
    for uuid, wanted in claim_use(grant).amounts.items():
        holders = [(str(other), held[uuid]) for other, held in taken_before if uuid in held]
        if uuid in of_pods:
            holders.append(("Pods with HAMi's annotation", of_pods[uuid]))
        taken = NOTHING
        for _, amounts in holders:
            taken = taken.plus(amounts)
        problem = _problem(devices.get(uuid), wanted, taken)
        if problem is not None:
            names = ", ".join(name for name, _ in holders) or "nobody"
            raise CapacityError(f"{grant} is not prepared: device {uuid} {problem}, by {names}. {_ADVICE}")


def _check_places(grant: ClaimGrant, others: Iterable[ClaimGrant]) -> None:
    """Check that no MIG instance of *grant* shares a memory slice with another. Raises: CapacityError."""
    taken = [(other, place) for other in others for place in _instances(other)]
    for mine in _instances(grant):
        for other, place in taken:
            if mine.gpu_uuid == place.gpu_uuid and overlap(mine.placement, place.placement):
                raise CapacityError(
                    f"{grant} is not prepared: MIG instance {mine.profile} at {shown(mine.placement)} of GPU "
                    f"{mine.gpu_uuid} is in the place of {place.profile} at {shown(place.placement)}, by {other}. "
                    f"{_ADVICE}"
                )
        taken.append((grant, mine))


def _instances(grant: ClaimGrant) -> list[MigAllocation]:
    return [result.instance for result in grant.results if result.instance is not None]


def _problem(device: Device | None, wanted: Amounts, taken: Amounts) -> str | None:
    if device is None:
        return "is not one of this Node"
    for has, needed, used, what in (
        (device.memory_mib, wanted.memory_mib, taken.memory_mib, "MiB of memory"),
        (device.core_percent, wanted.core_percent, taken.core_percent, "% of compute"),
        (device.count, wanted.replicas, taken.replicas, "shares"),
    ):
        if needed + used > has:
            return f"has {has} {what}, the claim has {needed}, and {used} are taken"
    return None
