"""
What the scheduler knows of one vendor, beside the names and keys that all services share.

One algorithm serves all vendors. A vendor is data, plus functions for what only it does; an ordinary vendor has none.
Neighbours: `hamicommon.vendors` has the shared description, `vendors` one module a vendor.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from hami_scheduler.values.attempt import Attempt, Check, Chooser
from hami_scheduler.values.constraints import Constraints, VendorAnnotations, read_preference
from hami_scheduler.values.device_use import DeviceUse
from hami_scheduler.values.policies import DevicePolicy
from hami_scheduler.values.reasons import Reason
from hamicommon.model import ContainerShares, Device, PodShares, Request
from hamicommon.pod.amounts import Amounts
from hamicommon.vendors.description import RequestParser, Vendor
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
    vendor_annotations: VendorAnnotations
    unix_nanoseconds: int

    @property
    def granted(self) -> tuple[tuple[str, Request, ContainerShares], ...]:
        """The containers that get a device."""
        return tuple((name, request, shares) for name, request, shares in self.containers if request and shares)


@dataclass(frozen=True, slots=True)
class _Rated:
    """A Node that a vendor rates for a Pod."""

    vendor_annotations: Mapping[str, str]
    """The Node annotations in `VendorRules.node_keys`."""
    constraints: Constraints
    policy: str
    """The Node policy that the Pod names; any text."""

    @property
    def is_spread(self) -> bool:
        """Whether the Node with the lowest rating is chosen."""
        return self.policy == "spread"


@dataclass(frozen=True, slots=True)
class NodeView(_Rated):
    """A Node where a Pod fits, as the input of a vendor's rating."""

    shares: PodShares
    """What each container would get of this vendor."""
    uses: Sequence[DeviceUse]
    """The Node's devices before the Pod, of every vendor."""
    devices: Mapping[str, Device]
    """The same by UUID."""


@dataclass(frozen=True, slots=True)
class Prospect(_Rated):
    """A Node before a Pod is tried on it, as the input of a vendor's best possible rating."""

    devices: Sequence[Device]
    """Of every vendor."""
    used: Set[int]
    """The indexes of the devices in use."""
    counts: Sequence[int]
    """Devices asked of the vendor, one entry per container that asks for any."""


@dataclass(frozen=True, slots=True)
class FitRules:
    """
    How the devices of one vendor are shared, as far as this differs from the ordinary way.

    Ordinarily a share takes the memory and the percentage of compute it asks for and one replica, and a container
    gets the first devices that have room.
    """

    amounts: Callable[[DeviceUse, Attempt], Amounts] | None = None
    """What a share takes; None if it is what was asked."""
    counts_memory: bool = True
    """Whether memory is checked as an amount."""
    counts_cores: bool = True
    """Whether compute is checked as a percentage."""
    counts_replicas: bool = True
    """Whether replicas are checked."""
    is_exclusive: bool = False
    """Whether a device in use takes no other Pod."""
    unhealthy: Reason = Reason.UNHEALTHY
    check_node: Callable[[Attempt], Reason | None] | None = None
    """Why no device of the Node can take the share; called once, before any device is checked."""
    check_first: Check | None = None
    """Called before the checks that depend on usage."""
    check_last: Check | None = None
    """Called after all other checks have passed."""
    choose: Callable[[Attempt], Chooser | None] | None = None
    """
    How to choose among all devices with room. If it is None, or returns None, the first devices are taken.

    Called without candidates, it returns a chooser if any candidates could need one.
    """
    chooses_of_enough: bool = False
    """Whether its choosers never return a refusal of their own."""

    @property
    def is_plain(self) -> bool:
        """Whether a share takes what was asked, so that arrays can check it."""
        return self.amounts is None

    def refuses_itself(self, attempt: "Attempt") -> bool:
        """Return whether only the vendor's chooser knows why *attempt* fails."""
        return not self.chooses_of_enough and self.choose is not None and self.choose(attempt) is not None


ORDINARY = FitRules()


@dataclass(frozen=True, slots=True)
class VendorRules:
    """One vendor, as decisions see it."""

    vendor: Vendor
    fit: FitRules = ORDINARY
    read_devices: Callable[[Mapping[str, Any]], Sequence[Device]] | None = None
    """
    Reads the devices of a v1 Node; None if its register annotation lists them.

    Raises DecodeError if the Node cannot be read.
    """
    pod_keys: tuple[str, ...] = ()
    """Pod annotations that become `VendorAnnotations`."""
    node_keys: tuple[str, ...] = ()
    """Node annotations that its rating reads."""
    mode_key: str = ""
    """Pod annotation naming the acceptable device modes; empty if the vendor has no modes."""
    mig_preference_key: str = ""
    """Pod annotation naming the MIG profiles to try first; empty if the vendor has none."""
    numa_bind_key: str = ""
    """Pod annotation asking for one NUMA node; empty if the vendor has none."""
    pair_scores_key: str = ""
    """Node annotation rating the links between its devices; empty if the vendor has none."""
    core_capacity: Callable[[VendorAnnotations], int] | None = None
    """Compute that every device offers a Pod with these annotations; 0 for what the device registered."""
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
    kubelet_resources: tuple[str, ...] = ()
    """
    The resources that its device plugin registers with the kubelet, the one that shows that it runs first; by default
    the count alone.
    """
    parse_request: RequestParser = field(init=False)
    """The vendor's."""
    key: str = field(init=False)
    """The vendor's key, as it stands in annotations (`NVIDIA`)."""
    resource_set: frozenset[str] = field(init=False)
    """The names of its resources."""
    counted: frozenset[str] = field(init=False)
    """The resources that a kubelet may count."""

    def __post_init__(self) -> None:
        """Prepare what every container of every Pod needs."""
        object.__setattr__(self, "parse_request", self.vendor.parse_request)
        object.__setattr__(self, "key", self.vendor.key)
        object.__setattr__(self, "resource_set", self.vendor.resource_set)
        if not self.kubelet_resources and self.vendor.resource_names:
            object.__setattr__(self, "kubelet_resources", (self.count_resource,))
        object.__setattr__(self, "counted", frozenset({*self.kubelet_resources, self.count_resource} - {""}))

    @property
    def count_resource(self) -> str:
        """The resource that counts devices."""
        return self.vendor.resource_names[0] if self.vendor.resource_names else ""

    def read_vendor_annotations(self, annotations: Mapping[str, str]) -> VendorAnnotations:
        """Return the *annotations* of a Pod for this vendor alone."""
        return tuple((key, annotations[key]) for key in self.pod_keys if key in annotations)

    def read_constraints(self, annotations: Mapping[str, str], policy: DevicePolicy) -> Constraints:
        """Return the rules that the *annotations* of a Pod set for this vendor's devices."""
        vendor, vendor_annotations = self.vendor, self.read_vendor_annotations(annotations)
        return Constraints(
            use_uuids=on_both(annotations.get(vendor.use_uuid_key), annotations.get(vendor.also_use_uuid_key)),
            nouse_uuids=on_either(annotations.get(vendor.nouse_uuid_key), annotations.get(vendor.also_nouse_uuid_key)),
            use_types=annotations.get(vendor.use_type_key),
            nouse_types=annotations.get(vendor.nouse_type_key),
            type_word=self.key.lower() if self.is_named_by_type else "",
            modes=annotations.get(self.mode_key) if self.mode_key else None,
            mig_preference=read_preference(annotations.get(self.mig_preference_key, "")),
            is_numa_bound=self.binds_to_numa(annotations),
            is_mutex=policy.is_mutex,
            is_topology_aware=policy.is_topology_aware,
            vendor_annotations=vendor_annotations,
            core_capacity=self.core_capacity(vendor_annotations) if self.core_capacity else 0,
        )

    def binds_to_numa(self, annotations: Mapping[str, str]) -> bool:
        """Return whether a Pod with *annotations* wants each container's devices from one NUMA node."""
        return bool(self.numa_bind_key) and parse_bool(annotations.get(self.numa_bind_key, "")) is True

    def share_type(self, device: Device) -> str:
        """Return the type that a share of *device* is written with."""
        has_separator = any(separator in device.type for separator in ",:;")
        return device.type if self.names_model and device.type and not has_separator else self.key


def resources_counted(vendors: Iterable[VendorRules]) -> frozenset[str]:
    """Return the resources of *vendors* that a kubelet may count."""
    return frozenset().union(*(rules.counted for rules in vendors))
