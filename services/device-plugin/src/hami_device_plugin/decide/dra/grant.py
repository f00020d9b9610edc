"""
Decide what a ResourceClaim's allocation grants on this Node.

A container gets all results of a request or none, so the shares of one request are one grant, with one region and one
set of limits. Each result has a CDI device of its own, by which the kubelet tells the runtime.
Neighbours: `hamicommon.dra.claims` reads claims, `serve.dra.claims` prepares grants.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hamicommon.dra.claims import Claim, Result
from hamicommon.dra.names import DRIVER, base_request
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, Device, Share
from hamicommon.pod.amounts import Amounts


class ClaimError(HamiError):
    """A claim cannot be prepared on this Node."""


@dataclass(frozen=True, slots=True)
class GrantedResult:
    """One result of a claim's allocation, as it was prepared."""

    request: str
    """As containers name it."""
    pool: str
    device: str
    """The name in its slice."""
    share_id: str
    """Empty if the device is not shared."""
    share: Share
    replicas: int
    """How many of its device's shares it counts as."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What tells it from every other result, also of later allocations of the same claim."""
        return self.request, self.pool, self.device, self.share_id

    @property
    def amounts(self) -> Amounts:
        """What it takes of its device."""
        return Amounts(self.replicas, self.share.memory_mib, self.share.core_percent)


@dataclass(frozen=True, slots=True)
class ClaimGrant:
    """What one claim was given of this Node's devices."""

    namespace: str
    name: str
    uid: str
    results: tuple[GrantedResult, ...]

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"ResourceClaim {self.namespace}/{self.name}"

    @property
    def requests(self) -> tuple[str, ...]:
        """The requests that containers may name."""
        return tuple(dict.fromkeys(result.request for result in self.results))

    def shares(self, request: str) -> ContainerShares:
        """Return the shares of a container that uses *request*."""
        return tuple(result.share for result in self.results if result.request == request)

    def cdi_devices(self, request: str) -> tuple[str, ...]:
        """Return the CDI device of each result of *request*."""
        return tuple(self.cdi_device(result) for result in self.results if result.request == request)

    def cdi_device(self, result: GrantedResult) -> str:
        """Return the CDI device of *result*."""
        return cdi.claim_device(self.uid, result.request, result.share_id or result.device)

    def is_same(self, other: "ClaimGrant") -> bool:
        """Return whether *other* is of the same allocation, whatever the devices had when each was made."""
        return [result.key for result in self.results] == [result.key for result in other.results]


def claim_grant(claim: Claim, node: str, offered: Mapping[str, Device]) -> ClaimGrant:
    """
    Return what *claim* grants on *node*, which has *offered* its devices by these names.

    Raises:
        ClaimError: it is not allocated, or to something that this Node cannot give.
    """
    shown = f"ResourceClaim {claim}"
    if not claim.is_allocated:
        raise ClaimError(f"{shown} is not allocated; kube-scheduler allocates it for a Pod")
    if claim.has_parameters:
        raise ClaimError(
            f"{shown} has parameters for {DRIVER}, which takes none: remove `opaque` from the `config` of the claim "
            "and of its DeviceClasses, and ask for amounts by `capacity.requests`"
        )
    if not claim.results:
        raise ClaimError(f"{shown} has no device of {DRIVER}")
    results = tuple(_granted(shown, result, node, offered) for result in claim.results)
    return ClaimGrant(claim.namespace, claim.name, claim.uid, results)


def _granted(shown: str, result: Result, node: str, offered: Mapping[str, Device]) -> GrantedResult:
    place = f"{shown}, request {result.request}"
    if result.is_admin:
        raise ClaimError(f"{place}: adminAccess is not served: a container sees a device only with a share of it")
    if result.pool != node:
        raise ClaimError(f"{place}: pool {result.pool!r} is another Node's; this is Node {node}")
    device = offered.get(result.device)
    if device is None:
        raise ClaimError(f"{place}: device {result.device!r} is not one of Node {node}: {', '.join(sorted(offered))}")
    taken = result.of(device)
    request = base_request(result.request)
    return GrantedResult(request, result.pool, result.device, result.share_id, result.share(device), taken.replicas)
