"""
What a Pod gets on one Node, and the grant that this becomes.

Neighbours: `place_pod` finds placements, `bind.plan` writes grants.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hami_scheduler.values.grant import Grant
from hami_scheduler.values.inventory import NodeInventory
from hami_scheduler.values.request import PodRequest
from hami_scheduler.values.vendor import Allotment
from hamicommon.model import MigAllocation, PodShares


@dataclass(frozen=True, slots=True)
class Placement:
    """What each container of a Pod would get on one Node."""

    shares: Mapping[str, PodShares]
    """Per vendor key, for each vendor asked: one entry per container, in Pod order."""
    mig: tuple[MigAllocation, ...] = ()
    """The MIG instances to create, for shares of devices in MIG mode."""


def grant_of(request: PodRequest, inventory: NodeInventory, placement: Placement, unix_nanoseconds: int) -> Grant:
    """Return what *placement* grants the Pod of *request* on the Node of *inventory*."""
    devices = {device.id: device for device in inventory.devices}
    annotations: dict[str, str] = {}
    for key, rules in request.vendors.items():
        shares = placement.shares[key]
        if rules.annotate is None or not any(shares):
            continue
        asked = [next((r for r in container.requests if r.vendor == key), None) for container in request.containers]
        names = [container.name for container in request.containers]
        containers = tuple(zip(names, asked, shares, strict=True))
        allotment = Allotment(
            inventory.name, containers, devices, request.constraints[key].vendor_annotations, unix_nanoseconds
        )
        annotations.update(rules.annotate(allotment))
    return Grant(
        request.uid,
        request.namespace,
        request.name,
        inventory.name,
        request.kinds,
        placement.shares,
        mig=placement.mig,
        vendor_annotations={
            key: found.vendor_annotations for key, found in request.constraints.items() if found.vendor_annotations
        },
        is_set_up=False,
        annotations=annotations,
        replicas=request.replicas,
    )
