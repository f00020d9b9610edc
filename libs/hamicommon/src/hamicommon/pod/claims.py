"""
Which ResourceClaims the containers of a Pod use.

A container may name one request of a claim, and then gets only that request's devices. For an extended resource that a
DeviceClass maps, kube-scheduler makes a claim and says in the Pod's status which container has which request.
Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/cm/dra/manager.go (GetResources)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hamicommon.pod.containers import containers_of


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """One claim, or one request of it, that a container uses."""

    claim: str
    """The claim's name, in the Pod's namespace."""
    request: str = ""
    """Empty for all requests of the claim."""
    is_extended: bool = False
    """Whether kube-scheduler made the claim for extended resources of the container."""


def claim_uses(pod: Mapping[str, Any]) -> Mapping[str, tuple[ClaimUse, ...]]:
    """
    Return what each container of *pod* uses, by its name; without containers that use none.

    A claim that a template makes has no name until it exists, and is left out.
    """
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    entries, extended = spec.get("resourceClaims"), status.get("extendedResourceClaimStatus")
    if not entries and not extended:
        return {}
    found: dict[str, list[ClaimUse]] = {}
    names = _names(entries or (), status.get("resourceClaimStatuses") or ())
    for container, _ in containers_of(pod):
        for one in (container.get("resources") or {}).get("claims") or ():
            claim = names.get(one.get("name") or "")
            if claim:
                found.setdefault(container.get("name") or "", []).append(ClaimUse(claim, one.get("request") or ""))
    for container_name, use in _extended(extended or {}):
        found.setdefault(container_name, []).append(use)
    return {container: tuple(uses) for container, uses in found.items()}


def _names(entries: Any, statuses: Any) -> dict[str, str]:
    """Return the name of each claim by that of its entry in the Pod's spec."""
    made = {one.get("name"): one.get("resourceClaimName") for one in statuses}
    named = {one.get("name"): one.get("resourceClaimName") or made.get(one.get("name")) for one in entries}
    return {entry or "": claim for entry, claim in named.items() if claim}


def _extended(status: Mapping[str, Any]) -> Iterator[tuple[str, ClaimUse]]:
    claim = status.get("resourceClaimName")
    for one in status.get("requestMappings") or () if claim else ():
        yield one.get("containerName") or "", ClaimUse(str(claim), one.get("requestName") or "", is_extended=True)
