"""
Read from a Pod object what allocation needs, whoever wrote its annotations.

Pure. Knows the Pod's shape and HAMi's positions of shares; not where the object comes from.
Neighbours: `identity` and `lock` decide with it, `kube` delivers the objects.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hamicommon.model import PodShares
from hamicommon.quantity import whole
from hamicommon.wire.device_lists import parse_bool
from hamicommon.wire.pod_devices import shares_by_container

DISABLE_CONTROL = "CUDA_DISABLE_CONTROL"


@dataclass(frozen=True, slots=True)
class PodContainer:
    """One container of a Pod's spec."""

    name: str
    requested: int
    """Devices it asks for."""
    is_init: bool
    is_control_disabled: bool


@dataclass(frozen=True, slots=True)
class Pod:
    """What a Pod object says about its allocation."""

    uid: str
    namespace: str
    name: str
    node: str
    """Empty while it is not bound."""
    phase: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    containers: tuple[PodContainer, ...]
    """Init containers first."""

    def __str__(self) -> str:
        """Name the Pod as messages do."""
        return f"{self.namespace}/{self.name}"


def read_pod(item: Mapping[str, Any], resource: str) -> Pod:
    """
    Return what *item* says; *resource* is the name devices are counted by.
    """
    metadata, spec = item.get("metadata") or {}, item.get("spec") or {}
    init = [_container(found, resource, is_init=True) for found in spec.get("initContainers") or ()]
    main = [_container(found, resource, is_init=False) for found in spec.get("containers") or ()]
    return Pod(
        uid=metadata.get("uid", ""),
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        node=spec.get("nodeName") or "",
        phase=(item.get("status") or {}).get("phase", ""),
        annotations=metadata.get("annotations") or {},
        labels=metadata.get("labels") or {},
        containers=(*init, *main),
    )


def assign(shares: PodShares, containers: Sequence[PodContainer]) -> PodShares:
    """
    Return the shares of each of *containers*, in their order.

    By position where that fits who asks for devices. Else the writer lost the places of containers without devices:
    HAMi 2.10 does for some (https://github.com/Project-HAMi/HAMi/issues/2899), releases before 2.9 did always and did
    not count init containers.
    """
    everyone = tuple(bool(container.requested) for container in containers)
    placed = shares_by_container(shares, len(containers), everyone)
    if _fits(placed, containers, everyone):
        return placed
    main = tuple(bool(container.requested) and not container.is_init for container in containers)
    without_init = shares_by_container(shares, len(containers), main)
    return without_init if _fits(without_init, containers, main) else placed


def _fits(placed: PodShares, containers: Sequence[PodContainer], counted: Sequence[bool]) -> bool:
    """
    Say whether each container that is *counted* has as many shares as it asks for, and the others none.
    """
    wanted = [container.requested if counts else 0 for container, counts in zip(containers, counted, strict=True)]
    return [len(granted) for granted in placed] == wanted


def _container(item: Mapping[str, Any], resource: str, *, is_init: bool) -> PodContainer:
    amounts = item.get("resources") or {}
    amount = (amounts.get("limits") or {}).get(resource, (amounts.get("requests") or {}).get(resource))
    switches = [found for found in item.get("env") or () if found.get("name") == DISABLE_CONTROL]
    return PodContainer(
        name=item.get("name", ""),
        requested=(whole(str(amount)) or 0) if amount is not None else 0,
        is_init=is_init,
        is_control_disabled=any(parse_bool(found.get("value") or "") is True for found in switches),
    )
