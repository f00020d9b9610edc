"""
What the scheduler knows of one vendor, beside the names and keys that all services share.

One algorithm serves all vendors. A vendor is data, plus functions for what only it does; an ordinary vendor has none.
Neighbours: `hamicommon.vendors` has the shared description, `vendors` one module a vendor.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.fit import ORDINARY, Sharing
from hami_scheduler.values.rules import DevicePolicy, Notes, Rules
from hamicommon.model import ContainerShares, Device, PodShares, Request
from hamicommon.vendor import RequestParser, Vendor
from hamicommon.wire.device_lists import on_both, on_either
from hamicommon.wire.go.strconv import parse_bool


@dataclass(frozen=True, slots=True)
class Allotment:
    """What a Pod gets of one vendor, as the input of its further annotations."""

    node: str
    containers: tuple[tuple[str, Request | None, ContainerShares], ...]
    """Per container in Pod order: name, request, shares."""
    devices: Mapping[str, Device]
    """By UUID: the devices it gets."""
    notes: Notes
    unix_nanoseconds: int

    @property
    def granted(self) -> tuple[tuple[str, Request, ContainerShares], ...]:
        """The containers that get a device."""
        return tuple((name, request, shares) for name, request, shares in self.containers if request and shares)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A Node where a Pod fits, as the input of a vendor's rating."""

    shares: PodShares
    """What each container would get of this vendor."""
    uses: Sequence[DeviceUse]
    """The Node's devices before the Pod, of every vendor."""
    devices: Mapping[str, Device]
    """The same by UUID."""
    notes: Mapping[str, str]
    """The Node annotations in `VendorFrame.node_keys`."""
    rules: Rules
    policy: str
    """The Node policy that the Pod names; any text."""

    @property
    def is_spread(self) -> bool:
        """Whether the Node with the lowest rating is chosen."""
        return self.policy == "spread"


@dataclass(frozen=True, slots=True)
class Prospect:
    """A Node before a Pod is tried on it, as the input of a vendor's best possible rating."""

    devices: Sequence[Device]
    """Of every vendor."""
    used: Set[int]
    """The indexes of the devices in use."""
    notes: Mapping[str, str]
    """The Node annotations in `VendorFrame.node_keys`."""
    counts: Sequence[int]
    """Devices asked of the vendor, one entry per container that asks for any."""
    rules: Rules
    policy: str
    """The Node policy that the Pod names; any text."""

    @property
    def is_spread(self) -> bool:
        """Whether the Node with the lowest rating is chosen."""
        return self.policy == "spread"


@dataclass(frozen=True, slots=True)
class VendorFrame:
    """One vendor, as decisions see it."""

    vendor: Vendor
    sharing: Sharing = ORDINARY
    offers: Callable[[Mapping[str, Any]], Sequence[Device]] | None = None
    """
    Reads the devices of a v1 Node; None if its register annotation lists them.

    Raises DecodeError if the Node cannot be read.
    """
    pod_keys: tuple[str, ...] = ()
    """Pod annotations that become `Notes`."""
    node_keys: tuple[str, ...] = ()
    """Node annotations that its rating reads."""
    mode_key: str = ""
    """Pod annotation naming the acceptable device modes; empty if the vendor has no modes."""
    numa_bind_key: str = ""
    """Pod annotation asking for one NUMA node; empty if the vendor has none."""
    pair_scores_key: str = ""
    """Node annotation rating the links between its devices; empty if the vendor has none."""
    core_capacity: Callable[[Notes], int] | None = None
    """Compute that every device offers a Pod with these notes; 0 for what the device registered."""
    is_named_by_type: bool = True
    """
    Whether a device is offered only if its type contains the vendor's key.

    HAMi goes by the type alone. We go by the list that a device is on. If other plugins than ours write the list, the
    type must match too, because HAMi would not offer the device.
    """
    names_model: bool = False
    """Whether a share is written with the device's model instead of the vendor's key."""
    annotate: Callable[[Allotment], Mapping[str, str]] | None = None
    """The Pod annotations beside the two that list the shares."""
    rate: Callable[[NodeView], float] | None = None
    """What is added to a Node's score."""
    rate_at_best: Callable[[Prospect], float] | None = None
    """
    The best that `rate` can return, so that Nodes that cannot win are not tried. Under spread the lowest is best.
    """
    memory_in_mib: Callable[[int], int] = lambda amount: amount
    """MiB of an amount of memory asked, without a device at hand; nearly all vendors count MiB."""
    core_unit: str = "% compute"
    """The unit of its compute, in words."""
    core_units: Callable[[Any], Any] | None = None
    """
    Turns an amount of compute, or an array, into parts of a device; None if amounts are percentages.
    """
    may_find_owners: bool = False
    """Whether the device plugin may ask the kubelet which Pod an allocation is for, and need no lock."""
    parse_request: RequestParser = field(init=False)
    """The vendor's."""
    key: str = field(init=False)
    """The vendor's key, as it stands in annotations (`NVIDIA`)."""
    resource_set: frozenset[str] = field(init=False)
    """The names of its resources."""

    def __post_init__(self) -> None:
        """Prepare what every container of every Pod needs."""
        object.__setattr__(self, "parse_request", self.vendor.parse_request)
        object.__setattr__(self, "key", self.vendor.key)
        object.__setattr__(self, "resource_set", frozenset(self.vendor.resource_names))

    @property
    def count_resource(self) -> str:
        """The resource that counts replicas. Its allocatable amount says whether the device plugin is alive."""
        return self.vendor.resource_names[0] if self.vendor.resource_names else ""

    def read_notes(self, annotations: Mapping[str, str]) -> Notes:
        """Return the *annotations* of a Pod for this vendor alone."""
        return tuple((key, annotations[key]) for key in self.pod_keys if key in annotations)

    def read_rules(self, annotations: Mapping[str, str], policy: DevicePolicy) -> Rules:
        """Return the rules that the *annotations* of a Pod set for this vendor's devices."""
        vendor, notes = self.vendor, self.read_notes(annotations)
        return Rules(
            use_uuids=on_both(annotations.get(vendor.use_uuid_key), annotations.get(vendor.also_use_uuid_key)),
            nouse_uuids=on_either(annotations.get(vendor.nouse_uuid_key), annotations.get(vendor.also_nouse_uuid_key)),
            use_types=annotations.get(vendor.use_type_key),
            nouse_types=annotations.get(vendor.nouse_type_key),
            type_word=self.key.lower() if self.is_named_by_type else "",
            modes=annotations.get(self.mode_key) if self.mode_key else None,
            is_numa_bound=self.binds_to_numa(annotations),
            is_mutex=policy.is_mutex,
            is_topology_aware=policy.is_topology_aware,
            notes=notes,
            core_capacity=self.core_capacity(notes) if self.core_capacity else 0,
        )

    def binds_to_numa(self, annotations: Mapping[str, str]) -> bool:
        """Return whether a Pod with *annotations* wants each container's devices from one NUMA node."""
        return bool(self.numa_bind_key) and parse_bool(annotations.get(self.numa_bind_key, "")) is True

    def share_type(self, device: Device) -> str:
        """Return the type that a share of *device* is written with."""
        has_separator = any(separator in device.type for separator in ",:;")
        return device.type if self.names_model and device.type and not has_separator else self.key
