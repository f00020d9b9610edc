"""
What a Pod's annotations demand of the devices it gets, and how they rank them.

Owns `Rules` (which devices are acceptable) and `DevicePolicy` (which are tried first). Pure readings of text; a text
that means nothing falls back as HAMi falls back. Neighbours: `request` reads them once a decision, `fit` and `score`
apply them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hami_scheduler.vendor import VendorFrame
from hamicommon.model import Device
from hamicommon.wire.device_lists import parse_bool, type_allowed, uuid_allowed
from hamicommon.wire.policies import decode_device_policies

_CHAIN_KEYS = ("binpack", "spread", "numa")


@dataclass(frozen=True, slots=True)
class DevicePolicy:
    """
    How the devices of a Node are ordered before they are tried, last first.

    Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/scheduler/policy/gpu_policy.go
    """

    order: str = "spread"
    """`binpack`, `spread`, `mutex` or, for a list of policies, `chain`."""
    chain: tuple[str, ...] = ()
    """Sort keys of a `chain`, first decides."""
    is_mutex: bool = False
    """Only devices nobody uses are acceptable."""
    is_topology_aware: bool = False
    """Among all acceptable devices, those best connected to each other are taken."""


def read_device_policy(text: str) -> DevicePolicy:
    """
    Return the policy *text* names; a single unknown word means `spread`.

    >>> read_device_policy("binpack").order
    'binpack'
    >>> read_device_policy("mutex, numa").chain
    ('numa',)
    """
    words = decode_device_policies(text)
    is_mutex, is_topology_aware = "mutex" in words, "topology-aware" in words
    if "," in text or text == "numa":
        chain = tuple(word for word in words if word in _CHAIN_KEYS) or ("spread",)
        return DevicePolicy("chain", chain, is_mutex, is_topology_aware)
    order = text if text in {"binpack", "mutex"} else "spread"
    return DevicePolicy(order, (), is_mutex, is_topology_aware)


@dataclass(frozen=True, slots=True)
class Rules:
    """What one Pod demands of the devices of one vendor."""

    use_uuids: str | None = None
    nouse_uuids: str | None = None
    use_types: str | None = None
    nouse_types: str | None = None
    modes: str | None = None
    """Text that must contain the device's mode; None accepts every mode."""
    is_numa_bound: bool = False
    """All devices of one container come from one NUMA node."""
    is_mutex: bool = False

    def accepts_type(self, device: Device) -> bool:
        """Return whether the model and the mode of *device* are acceptable."""
        if self.modes is not None and device.mode not in self.modes:
            return False
        return type_allowed(self.use_types, self.nouse_types, device.type)

    def accepts_uuid(self, uuid: str) -> bool:
        """Return whether the Pod's UUID lists let it have device *uuid*."""
        return uuid_allowed(self.use_uuids, self.nouse_uuids, uuid)


def read_rules(annotations: Mapping[str, str], frame: VendorFrame, policy: DevicePolicy) -> Rules:
    """Return what the *annotations* of a Pod demand of devices of the vendor *frame*."""
    vendor = frame.vendor
    numa_bind = annotations.get(frame.numa_bind_key, "") if frame.numa_bind_key else ""
    return Rules(
        use_uuids=annotations.get(vendor.use_uuid_key),
        nouse_uuids=annotations.get(vendor.nouse_uuid_key),
        use_types=annotations.get(vendor.use_type_key),
        nouse_types=annotations.get(vendor.nouse_type_key),
        modes=annotations.get(frame.mode_key) if frame.mode_key else None,
        is_numa_bound=parse_bool(numa_bind) is True,
        is_mutex=policy.is_mutex,
    )
