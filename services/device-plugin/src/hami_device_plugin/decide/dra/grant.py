"""
Decide what a ResourceClaim's allocation grants on this Node.

A container gets all results of a request or none, so the shares of one request are one grant, with one region and one
set of limits. Each result has a CDI device of its own, by which the kubelet tells the runtime.
Neighbours: `hamicommon.dra.claims` reads claims, `hamicommon.dra.grants` has the grants, `serve.dra.claims` prepares.
"""

from collections.abc import Mapping

from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hamicommon.dra.claims import Claim, Result
from hamicommon.dra.grants import ClaimGrant, GrantedResult
from hamicommon.dra.names import DRIVER, base_request
from hamicommon.dra.partitions import Partition
from hamicommon.errors import HamiError
from hamicommon.model import Device


class ClaimError(HamiError):
    """A claim cannot be prepared on this Node."""


def claim_grant(claim: Claim, node: str, offered: Mapping[str, Device | Partition]) -> ClaimGrant:
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


def _granted(shown: str, result: Result, node: str, offered: Mapping[str, Device | Partition]) -> GrantedResult:
    place = f"{shown}, request {result.request}"
    if result.is_admin:
        raise ClaimError(f"{place}: adminAccess is not served: a container sees a device only with a share of it")
    if result.pool != node:
        raise ClaimError(f"{place}: pool {result.pool!r} is another Node's; this is Node {node}")
    device = offered.get(result.device)
    if device is None:
        raise ClaimError(f"{place}: device {result.device!r} is not one of Node {node}: {', '.join(sorted(offered))}")
    request = base_request(result.request)
    if isinstance(device, Partition):
        return GrantedResult(request, result.pool, result.device, result.share_id, device.share, 0, device.allocation)
    taken = result.of(device)
    return GrantedResult(request, result.pool, result.device, result.share_id, result.share(device), taken.replicas)


def cdi_devices(grant: ClaimGrant, request: str) -> tuple[str, ...]:
    """Return the CDI device of each result of *request*."""
    return tuple(cdi_device(grant, result) for result in grant.results if result.request == request)


def cdi_device(grant: ClaimGrant, result: GrantedResult) -> str:
    """Return the CDI device of *result* of *grant*."""
    return cdi.claim_device(grant.uid, result.request, result.share_id or result.device)
