"""
Decide what the tokens of a ResourceClaim stand for: the shares that their Pod was granted by HAMi's annotation.

kube-scheduler makes the claim for a Pod that asks for devices by resources, with a request for each container, and a
token for each device. The grant of the Pod says which devices these are, and how much of them.
Neighbours: `grant` reads claims of devices, `serve.dra.tokens` prepares.
"""

from collections.abc import Mapping
from typing import Any

from hami_device_plugin.decide.dra.grant import ClaimError
from hamicommon.dra.claims import Claim
from hamicommon.dra.grants import ClaimGrant, GrantedResult
from hamicommon.dra.names import base_request
from hamicommon.model import ContainerShares
from hamicommon.pod.reading import Pod
from hamicommon.wire.quantity import whole


def containers_by_request(claim: Claim, pod: Pod, node: str, vendor: str) -> Mapping[str, str]:
    """
    Return the container of *pod* that has each request of *claim*, a claim of tokens of *node*.

    Raises:
        ClaimError: it was not made for the devices of *vendor* that the Pod asks for, or two containers have a request.
    """
    shown = f"ResourceClaim {claim}"
    if claim.results:
        raise ClaimError(f"{shown} has devices and tokens; ask for devices by a claim, or by resources")
    found: dict[str, str] = {}
    for container in pod.containers:
        for use in pod.claims.get(container.name, ()):
            if use.claim != claim.name:
                continue
            if not (use.is_extended and container.asks(vendor)):
                raise ClaimError(
                    f"{shown} has tokens, which kube-scheduler gives to containers that ask for devices by resources; "
                    f"container {container.name} of Pod {pod} names the claim itself"
                )
            if use.request in found:
                raise ClaimError(
                    f"{shown} has one request for the containers {found[use.request]} and {container.name} of Pod "
                    f"{pod}, so both would get the same share; such a Pod needs a Node with a device plugin"
                )
            found[use.request] = container.name
    for token in claim.tokens:
        if token.pool != node:
            raise ClaimError(f"{shown}: pool {token.pool!r} is another Node's; this is Node {node}")
        if base_request(token.request) not in found:
            raise ClaimError(f"{shown}: no container of Pod {pod} has the request {token.request}")
    return found


def knows_replicas(node: Mapping[str, Any], resource: str) -> bool:
    """
    Return whether the kubelet of *node*, a v1 Node, still knows replicas of *resource* from a device plugin.

    It remembers a device plugin that has ended for five minutes, and starts no container that asks for its resource
    meanwhile: *no devices found allocated in local cache*. Later it lists the resource with a capacity of 0.
    Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/cm/devicemanager/manager.go
    (`GetCapacity`, `callPreStartContainerIfNeeded`)

    >>> knows_replicas({"status": {"capacity": {"nvidia.com/gpu": "20"}}}, "nvidia.com/gpu")
    True
    """
    listed = ((node.get("status") or {}).get("capacity") or {}).get(resource, "0")
    return whole(listed) != 0


def token_grant(claim: Claim, shares: Mapping[str, ContainerShares]) -> ClaimGrant:
    """
    Return what *claim* grants, if the container of each request was granted *shares*.

    Raises:
        ClaimError: a request has more or fewer tokens than shares.
    """
    results: list[GrantedResult] = []
    for request, granted in shares.items():
        tokens = [token for token in claim.tokens if base_request(token.request) == request]
        if len(tokens) != len(granted):
            raise ClaimError(
                f"ResourceClaim {claim}, request {request}: has {len(tokens)} tokens, and its container was granted "
                f"{len(granted)} devices"
            )
        results += [
            GrantedResult(request, token.pool, token.device, token.share_id, share, 1)
            for token, share in zip(tokens, granted, strict=True)
        ]
    return ClaimGrant(claim.namespace, claim.name, claim.uid, tuple(results))
