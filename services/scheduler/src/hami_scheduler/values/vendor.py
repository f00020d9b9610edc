"""
What the scheduler knows of one vendor, beside the names and keys every service shares.

Owns `VendorFrame`. One algorithm serves all vendors; a vendor is data plus the few functions that are truly its own,
and whoever is ordinary needs none of them. Neighbours: `hamicommon.vendors` describes, `vendors` has one module each,
`request`, `inventory`, `place_pod`, `filter` and `extender` use.
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
    """What a Pod gets of one vendor, as its side annotations tell it."""

    node: str
    containers: tuple[tuple[str, Request | None, ContainerShares], ...]
    """Per container in Pod order: its name, what it asks of this vendor, what it gets."""
    devices: Mapping[str, Device]
    """By UUID: the devices it gets."""
    notes: Notes
    unix_nanoseconds: int

    @property
    def granted(self) -> tuple[tuple[str, Request, ContainerShares], ...]:
        """The containers that get something."""
        return tuple((name, request, shares) for name, request, shares in self.containers if request and shares)


@dataclass(frozen=True, slots=True)
class NodeView:
    """A Node on which a Pod would fit, as one vendor rates it."""

    shares: PodShares
    """What each container would get of this vendor."""
    uses: Sequence[DeviceUse]
    """The Node's devices before the Pod, of every vendor."""
    devices: Mapping[str, Device]
    """The same by UUID."""
    notes: Mapping[str, str]
    """The Node annotations the vendor wants to know."""
    rules: Rules
    policy: str
    """The Node policy that the Pod names; any text."""

    @property
    def is_spread(self) -> bool:
        """Whether the Node with the lowest rating is chosen."""
        return self.policy == "spread"


@dataclass(frozen=True, slots=True)
class Prospect:
    """A Node before a Pod is tried on it, as one vendor guesses how it would rate it."""

    devices: Sequence[Device]
    """Of every vendor."""
    used: Set[int]
    """The indexes of those of *devices* that somebody has."""
    notes: Mapping[str, str]
    """The Node annotations the vendor wants to know."""
    counts: Sequence[int]
    """How many devices each container asks of the vendor that asks it for any."""
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
    The devices of a v1 Node that its register annotation does not simply list, none where it has none.

    Raises DecodeError where what it says cannot be read.
    """
    pod_keys: tuple[str, ...] = ()
    """Pod annotations that become `Notes`."""
    node_keys: tuple[str, ...] = ()
    """Node annotations that its rating reads."""
    mode_key: str = ""
    """Pod annotation naming the acceptable device modes; empty where the vendor has no modes."""
    numa_bind_key: str = ""
    """Pod annotation asking for one NUMA node; empty where the vendor has none."""
    pair_scores_key: str = ""
    """Node annotation rating the links between its devices; empty where the vendor has none."""
    core_capacity: Callable[[Notes], int] | None = None
    """What every device offers a Pod that says this, 0 for what it registered."""
    is_named_by_type: bool = True
    """
    Whether a device is offered only if its type contains the vendor's key.

    HAMi goes by the type alone. We go by the list a device is on, and let the type decide, too, where plugins other
    than ours write the list: what HAMi offers to nobody is not offered here.
    """
    names_model: bool = False
    """Whether a share is written with the device's model instead of the vendor's key."""
    annotate: Callable[[Allotment], Mapping[str, str]] | None = None
    """The Pod annotations beside the two that list the shares."""
    rate: Callable[[NodeView], float] | None = None
    """What is added to a Node's score."""
    rate_at_best: Callable[[Prospect], float] | None = None
    """
    What `rate` gives at best: no more, or under spread no less, than this, so that Nodes that cannot win are not tried.
    """
    memory_in_mib: Callable[[int], int] = lambda amount: amount
    """What an amount of memory that is asked means where no device is at hand; of nearly all vendors it is MiB."""
    core_unit: str = "% compute"
    """What its amounts of compute count, in words."""
    core_units: Callable[[Any], Any] | None = None
    """
    How many parts of a device an amount of compute is, of a number or of an array of them.

    None where an amount is told as it is: for nearly all vendors it is a percentage.
    """
    may_find_owners: bool = False
    """Whether a Node may say that its device plugin asks the kubelet whose an allocation is, and needs no lock."""
    parse_request: RequestParser = field(init=False)
    """The vendor's."""
    key: str = field(init=False)
    """The vendor's key, as it stands in annotations (`NVIDIA`)."""
    resource_set: frozenset[str] = field(init=False)
    """The names of its resources."""

    def __post_init__(self) -> None:
        """Prepare what is asked of every container of every Pod."""
        object.__setattr__(self, "parse_request", self.vendor.parse_request)
        object.__setattr__(self, "key", self.vendor.key)
        object.__setattr__(self, "resource_set", frozenset(self.vendor.resource_names))

    @property
    def count_resource(self) -> str:
        """The extended resource that counts replicas; its allocatable amount says whether the device plugin lives."""
        return self.vendor.resource_names[0] if self.vendor.resource_names else ""

    def read_notes(self, annotations: Mapping[str, str]) -> Notes:
        """Return what the *annotations* of a Pod say to this vendor alone."""
        return tuple((key, annotations[key]) for key in self.pod_keys if key in annotations)

    def read_rules(self, annotations: Mapping[str, str], policy: DevicePolicy) -> Rules:
        """Return what the *annotations* of a Pod demand of this vendor's devices."""
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
        """Return what a share of *device* is written with."""
        has_separator = any(separator in device.type for separator in ",:;")
        return device.type if self.names_model and device.type and not has_separator else self.key
