"""
Read what allocation needs from a Pod object, whichever HAMi version wrote its annotations.

Owns the shape of a Pod, and which container each list of shares belongs to.
Neighbours: `kube` delivers the objects, `identity` and `lock` decide with the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hami_device_plugin.decide.allocation import CORE_POLICY
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, PodShares
from hamicommon.quantity import whole
from hamicommon.vendor import Vendor
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.go.strconv import parse_bool
from hamicommon.wire.pod_devices import decode_pod_devices, shares_by_container

DISABLE_CONTROL = "CUDA_DISABLE_CONTROL"
CHOICES = frozenset({CORE_POLICY, "CUDA_TASK_PRIORITY"})
"""The library's variables by which the author of a Pod may loosen a limit."""


class AllocationError(HamiError):
    """A Pod carries no readable allocation for this Node."""


@dataclass(frozen=True, slots=True)
class PodContainer:
    """One container of a Pod's spec."""

    name: str
    requested: int
    """Devices that it requests."""
    is_init: bool
    is_control_disabled: bool
    """The user switched the library off with CUDA_DISABLE_CONTROL."""
    started_at: datetime | None = None
    """When its last run started, to the second; None while it waits to start."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Its variables among CHOICES, with their values. A value from a ConfigMap or Secret is unknown here."""


@dataclass(frozen=True, slots=True)
class Pod:
    """What a Pod object says about its allocation."""

    uid: str
    namespace: str
    name: str
    node: str
    """Empty until the Pod is bound."""
    phase: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    containers: tuple[PodContainer, ...]
    """Init containers first."""
    has_host_users: bool = True
    """False if its containers have a user namespace."""

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"{self.namespace}/{self.name}"


def read_pod(item: Mapping[str, Any], resource: str) -> Pod:
    """
    Return the Pod in *item*; *resource* is the name that counts devices.
    """
    metadata, spec, status = item.get("metadata") or {}, item.get("spec") or {}, item.get("status") or {}
    statuses = (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()))
    started = {found.get("name", ""): _started_at(found) for found in statuses}
    init = [_container(found, resource, started, is_init=True) for found in spec.get("initContainers") or ()]
    main = [_container(found, resource, started, is_init=False) for found in spec.get("containers") or ()]
    return Pod(
        uid=metadata.get("uid", ""),
        namespace=metadata.get("namespace", ""),
        name=metadata.get("name", ""),
        node=spec.get("nodeName") or "",
        phase=status.get("phase", ""),
        annotations=metadata.get("annotations") or {},
        labels=metadata.get("labels") or {},
        containers=(*init, *main),
        has_host_users=spec.get("hostUsers") is not False,
    )


def granted_shares(pod: Pod, node: str, vendor: Vendor) -> dict[str, ContainerShares]:
    """
    Return the shares of each container of *pod* on *node*.

    Raises:
        AllocationError: the Pod carries no readable allocation for this Node.
    """
    text = pod.annotations.get(vendor.allocated_key)
    if text is None:
        raise AllocationError(f"Pod {pod} has no annotation {vendor.allocated_key}: was it bound by HAMi's scheduler?")
    chosen = pod.annotations.get(keys.POD_NODE, node)
    if chosen != node:
        raise AllocationError(f"Pod {pod}: annotation {keys.POD_NODE} is {chosen!r}, but it runs on Node {node!r}")
    try:
        shares = decode_pod_devices(text)
    except DecodeError as error:
        raise AllocationError(f"Pod {pod}: annotation {vendor.allocated_key}: {error}") from error
    placed = assign(shares, pod.containers)
    return {container.name: granted for container, granted in zip(pod.containers, placed, strict=True)}


def assign(shares: PodShares, containers: Sequence[PodContainer]) -> PodShares:
    """
    Return the shares of each of *containers*, in their order.

    The n-th list is the n-th container's if that matches what the containers request. Otherwise the writer left out
    the empty lists: HAMi 2.10 does for some Pods (https://github.com/Project-HAMi/HAMi/issues/2899), and releases
    before 2.9 always did, without init containers.
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
    Return whether each *counted* container has as many shares as it requests, and every other has none.
    """
    wanted = [container.requested if counts else 0 for container, counts in zip(containers, counted, strict=True)]
    return [len(granted) for granted in placed] == wanted


def _started_at(status: Mapping[str, Any]) -> datetime | None:
    state = status.get("state") or {}
    text = (state.get("running") or state.get("terminated") or {}).get("startedAt")
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None


def _container(
    item: Mapping[str, Any], resource: str, started: Mapping[str, datetime | None], *, is_init: bool
) -> PodContainer:
    amounts = item.get("resources") or {}
    amount = (amounts.get("limits") or {}).get(resource, (amounts.get("requests") or {}).get(resource))
    switches = [found for found in item.get("env") or () if found.get("name") == DISABLE_CONTROL]
    return PodContainer(
        name=item.get("name", ""),
        requested=(whole(str(amount)) or 0) if amount is not None else 0,
        is_init=is_init,
        started_at=started.get(item.get("name", "")),
        is_control_disabled=any(parse_bool(found.get("value") or "") is True for found in switches),
        choices={
            found["name"]: found["value"]
            for found in item.get("env") or ()
            if found.get("name") in CHOICES and found.get("value")
        },
    )
