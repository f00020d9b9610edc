"""
One device with what is promised of it, and what a share takes.

Owns no rule: `rules.fit` decides whether a device can take one more share. Neighbours: `state.ledger` builds these for
one Node, `grant` adds up what a Pod takes.
"""

from dataclasses import dataclass, field

from hami_scheduler.values.constraints import VendorAnnotations
from hamicommon.model import Device, MigPlacement


@dataclass(frozen=True, slots=True)
class PodOnDevice:
    """A Pod on a device, for vendors that let the annotations of one Pod affect the next."""

    vendor_annotations: VendorAnnotations
    core_percent: int
    is_set_up: bool = True
    """Whether the device plugin has set the device up for it, so that the Node reports the result."""
    is_asking: bool = False
    """Whether it is an earlier container of the Pod being tried."""


@dataclass(slots=True)
class DeviceUse:
    """One device and what is promised of it; a placement changes its own copy while it is tried."""

    device: Device
    is_cordoned: bool = False
    replicas: int = 0
    memory_mib: int = 0
    core_percent: int = 0
    occupied: list[MigPlacement] = field(default_factory=list)
    """Places taken by MIG instances."""
    instances_known: bool = True
    """Whether every MIG instance on the device is known."""
    pods: tuple[PodOnDevice, ...] = ()
    """The Pods on it whose vendor annotations matter, in no order."""
    is_withheld: bool = False
    """Whether the container being tried may not have it, because a later container needs it."""

    def copy(self) -> "DeviceUse":
        """Return a copy to try a placement on."""
        return DeviceUse(
            self.device,
            self.is_cordoned,
            self.replicas,
            self.memory_mib,
            self.core_percent,
            list(self.occupied),
            self.instances_known,
            self.pods,
        )

    def take(self, memory_mib: int, core_percent: int, replicas: int = 1) -> None:
        """Promise one more share."""
        self.replicas += replicas
        self.memory_mib += memory_mib
        self.core_percent += core_percent
