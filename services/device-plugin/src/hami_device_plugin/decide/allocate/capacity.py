"""
Decide whether a Pod may start by what its Node's devices have: the last line behind the scheduler's ledger.

Two schedulers, or an old leader whose Binding arrives late, may grant one device twice. The Pod that starts later is
refused then; one that has started is never.
Neighbours: `hamicommon.pod` adds up the containers of a Pod, `serve.allocate.last_line` says which Pods have started.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from hami_device_plugin.decide.allocate.pods import AllocationError, granted_shares
from hami_device_plugin.decide.inventory import MIG
from hamicommon.dra.grants import ClaimGrant
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, Device
from hamicommon.pod.amounts import NOTHING, Amounts, base_uuid
from hamicommon.pod.containers import ContainerKind
from hamicommon.pod.reading import Pod
from hamicommon.vendors.description import Vendor

WHOLE_CORE_PERCENT = 100
"""A share of so much compute is alone on a device that offers no more."""


class CapacityError(HamiError):
    """A device has not what a Pod was granted of it, beside the Pods that have started."""


@dataclass(frozen=True, slots=True)
class Use:
    """What one Pod, or one ResourceClaim, takes from the devices of its Node."""

    name: str
    """As messages have it."""
    amounts: Mapping[str, Amounts]
    """The most at any time, by UUID."""
    whole: frozenset[str]
    """UUIDs of the devices of which it has all compute."""


def pod_use(pod: Pod, node: str, vendor: Vendor) -> Use:
    """
    Return what *pod* takes on *node*; nothing if its grant cannot be read.

    Only containers that ask for devices count: the kubelet gives others none, whatever is written on their Pod.
    """
    granted: Mapping[str, ContainerShares] = {}
    with suppress(AllocationError):
        granted = granted_shares(pod, node, vendor)
    shares = tuple(granted.get(found.name, ()) if found.asks(vendor.key) else () for found in pod.containers)
    amounts = pod.amounts(shares)
    counted = (
        share
        for found, of_container in zip(pod.containers, shares, strict=True)
        for share in of_container
        if not (pod.inits_are_done and found.kind is ContainerKind.INIT)
    )
    whole = frozenset(base_uuid(share.uuid) for share in counted if share.core_percent >= WHOLE_CORE_PERCENT)
    return Use(str(pod), amounts, whole)


def claim_use(grant: ClaimGrant) -> Use:
    """Return what *grant* takes. A MIG instance takes nothing of a device that is shared."""
    amounts: dict[str, Amounts] = {}
    for result in grant.results:
        if result.instance is None:
            amounts[result.share.uuid] = amounts.get(result.share.uuid, NOTHING).plus(result.amounts)
    return Use(str(grant), amounts, frozenset())


def check_capacity(
    pod: Pod,
    started: Iterable[Pod],
    devices: Mapping[str, Device],
    node: str,
    vendor: Vendor,
    prepared: Iterable[ClaimGrant] = (),
) -> None:
    """
    Check that *pod* fits on *devices*, those that *node* offers by UUID, beside the Pods that have *started* there.

    ResourceClaims that are *prepared* there hold devices too: a device that changes sides may still be in use.

    What a device has is what its inventory says, after scaling. Devices in mode `mig` are left out: their instances are
    created one by one, and the driver refuses what does not fit.

    Raises:
        CapacityError: it does not.
    """
    wanted = pod_use(pod, node, vendor)
    others = [*(pod_use(other, node, vendor) for other in started), *map(claim_use, prepared)]
    for uuid, amount in wanted.amounts.items():
        device = devices.get(uuid)
        if device is None or device.mode == MIG:
            continue
        beside = [other for other in others if uuid in other.amounts]
        problem = _problem(device, amount, wanted, beside)
        if problem is not None:
            names = ", ".join(sorted(other.name for other in beside)) or "no other Pod"
            raise CapacityError(
                f"Pod {pod} does not start: device {uuid} {problem}; {names} started before. "
                "It was granted more than there is: delete this Pod, so that it is placed again"
            )


def _problem(device: Device, amount: Amounts, wanted: Use, beside: list[Use]) -> str | None:
    before = NOTHING
    for other in beside:
        before = before.plus(other.amounts[device.id])
    total = before.plus(amount)
    for has, needed, taken, what in (
        (device.memory_mib, total.memory_mib, before.memory_mib, "MiB of memory"),
        (device.core_percent, total.core_percent, before.core_percent, "% of compute"),
        (device.count, total.replicas, before.replicas, "shares"),
    ):
        if needed > has:
            return f"has {has} {what}, of which {taken} are taken, and the Pod was granted {needed - taken}"
    is_one_whole = device.id in wanted.whole or any(device.id in other.whole for other in beside)
    if beside and is_one_whole and device.core_percent <= WHOLE_CORE_PERCENT:
        return "was granted exclusively, and is not free"
    return None
