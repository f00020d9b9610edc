"""
Read a v1 Pod into one value.

Owns which fields of the object mean what. `amounts`, `containers`, `lists` and `variables` own the rules for the parts.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Protocol

from hamicommon.model import MigAllocation, PodShares, Request
from hamicommon.pod.amounts import Amounts, amounts_over_time
from hamicommon.pod.claims import ClaimUse, claim_uses
from hamicommon.pod.containers import (
    ENDED_PHASES,
    ContainerKind,
    ContainerState,
    containers_of,
    id_of,
    inits_are_done,
    started_at,
    state_of,
    statuses_of,
)
from hamicommon.pod.lists import Granted, granted, usually_asking
from hamicommon.pod.moved import moved_out, with_moved
from hamicommon.pod.shape import POD, check_shape
from hamicommon.pod.variables import choices_of, is_control_disabled, priority_of
from hamicommon.vendors.description import RequestParser
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.mig import decode_mig_allocations
from hamicommon.wire.pod_devices import decode_pod_devices

NOTHING_GRANTED = Granted((), {})


class Asked(Protocol):
    """What is known of a vendor to read what a container asks: a `Vendor`, or what a service makes of one."""

    @property
    def key(self) -> str: ...
    @property
    def resource_set(self) -> frozenset[str]: ...
    @property
    def parse_request(self) -> RequestParser: ...


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a Pod."""

    name: str
    kind: ContainerKind
    requests: tuple[Request, ...] = ()
    """At most one per vendor; empty if it asks for no device, or the reader knows no vendors."""
    state: ContainerState = ContainerState.WAITING
    started_at: datetime | None = None
    """When its last run started, to the second; None while it waits to start."""
    id: str = ""
    """That of its last run, without the runtime's name; empty if it was not started."""
    is_control_disabled: bool = False
    """Whether its author switched the library off with `CUDA_DISABLE_CONTROL`."""
    is_privileged: bool = False
    is_never_root: bool = False
    """Whether none of its processes is, or becomes, root on its Node."""
    choices: Mapping[str, str] = field(default_factory=dict)
    """Its variables by which its author may loosen a limit; see `hamicommon.pod.variables`."""
    resources: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """Its `limits` and `requests`, with the amounts that were moved out of its limits."""

    @property
    def priority(self) -> int | None:
        """Its priority on its devices; None if it sets none."""
        return priority_of(self.choices)

    @property
    def may_run(self) -> bool:
        """Whether it runs or may run again; an ordinary init container that has succeeded does not."""
        return self.kind is not ContainerKind.INIT or self.state is not ContainerState.SUCCEEDED

    def asks(self, vendor_key: str) -> bool:
        """Return whether it asks for devices of the vendor *vendor_key*."""
        return any(request.vendor == vendor_key for request in self.requests)


@dataclass(frozen=True, slots=True)
class Pod:
    """One Pod. It borrows the object's annotations and labels, which nobody changes."""

    uid: str
    namespace: str
    name: str
    node: str
    """Empty until the Pod is bound."""
    phase: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    containers: tuple[Container, ...]
    """Init containers first, in Pod order."""
    inits_are_done: bool = False
    """Whether it has ordinary init containers and all of them have succeeded."""
    priority: int = 0
    """For preemption."""
    has_host_users: bool = True
    """False if its containers have a user namespace."""
    claims: Mapping[str, tuple[ClaimUse, ...]] = field(default_factory=dict)
    """The ResourceClaims that its containers use, by the container's name; without containers that use none."""

    def __str__(self) -> str:
        """Return the name that messages use."""
        return f"{self.namespace}/{self.name}"

    @property
    def has_ended(self) -> bool:
        """Whether none of its containers runs or will run."""
        return self.phase in ENDED_PHASES

    @property
    def has_started(self) -> bool:
        """Whether all of its containers have been started, or it has ended."""
        return self.phase not in {"", "Pending"}

    @property
    def holds(self) -> bool:
        """Whether its grants count: it is bound and has not ended. On an unbound Pod anyone may write them."""
        return bool(self.node) and not self.has_ended

    @property
    def kinds(self) -> tuple[ContainerKind, ...]:
        """The kind of each container, in Pod order."""
        return tuple(container.kind for container in self.containers)

    def granted(self, allocated_key: str, vendor_key: str | None = None) -> Granted:
        """
        Return what the annotation *allocated_key* grants to the containers; nothing if there is none.

        Without *vendor_key*, the reader's vendors are unknown, and the resources of HAMi's chart say who asks.

        Raises:
            DecodeError: it cannot be read.
        """
        text = self.annotations.get(allocated_key)
        if text is None:
            return NOTHING_GRANTED
        try:
            lists = decode_pod_devices(text)
        except DecodeError as error:
            raise error.within(allocated_key) from error
        return self.assigned(lists, allocated_key, vendor_key)

    def assigned(self, lists: PodShares, allocated_key: str, vendor_key: str | None = None) -> Granted:
        """Return which container owns which of *lists*, which were read from *allocated_key*."""

        def asking() -> Sequence[bool]:
            if vendor_key is None:
                return usually_asking(allocated_key, [{"resources": each.resources} for each in self.containers])
            return [container.asks(vendor_key) for container in self.containers]

        return granted(lists, self.containers, asking)

    def amounts(self, shares: PodShares) -> dict[str, Amounts]:
        """Return the most that its containers with *shares* take from each device from now on, by UUID."""
        return amounts_over_time(self.kinds, shares, inits_are_done=self.inits_are_done)

    def mig_allocations(self, shares: Granted) -> tuple[MigAllocation, ...]:
        """
        Return the MIG instances among *shares*, each with the position of its container.

        Raises:
            DecodeError: the annotation cannot be read.
        """
        written = decode_mig_allocations(self.annotations.get(keys.MIG_ALLOCATIONS) or "")
        return tuple(replace(one, container_index=shares.owner(one.container_index)) for one in written)


def read_pod(item: Mapping[str, Any], vendors: Iterable[Asked] = ()) -> Pod:
    """
    Return the Pod in *item*, a v1 Pod, with what its containers ask of *vendors*.

    Raises: DecodeError when a field has another type than in a v1 Pod, and cannot be read for that reason.
    """
    try:
        return _read(item, tuple(vendors))
    except (AttributeError, TypeError):
        check_shape(item, POD, "Pod")
        raise


def _read(item: Mapping[str, Any], vendors: Sequence[Asked]) -> Pod:
    metadata, spec, status = item.get("metadata") or {}, item.get("spec") or {}, item.get("status") or {}
    statuses = statuses_of(status)
    has_host_users = spec.get("hostUsers") is not False
    security = spec.get("securityContext")
    annotations = metadata.get("annotations") or {}
    moved = moved_out(annotations)
    return Pod(
        uid=metadata.get("uid") or "",
        namespace=metadata.get("namespace") or "default",
        name=metadata.get("name") or "",
        node=spec.get("nodeName") or "",
        phase=status.get("phase") or "",
        annotations=annotations,
        labels=metadata.get("labels") or {},
        containers=tuple(
            [
                read_container(
                    container,
                    kind,
                    vendors,
                    statuses.get(container.get("name") or ""),
                    moved.get(container.get("name") or ""),
                    is_never_root=not has_host_users or is_never_root(container.get("securityContext"), security),
                )
                for container, kind in containers_of(item)
            ]
        ),
        inits_are_done=inits_are_done(item),
        priority=spec.get("priority") or 0,
        has_host_users=has_host_users,
        claims=claim_uses(item),
    )


def is_never_root(own: Mapping[str, Any] | None, pods: Mapping[str, Any] | None) -> bool:
    """
    Return whether a container with the security contexts *own* and *pods* cannot be root, in the Node's users.

    Its first process is another user, and a program of its image that belongs to root does not make it root.
    Source: https://kubernetes.io/docs/tasks/configure-pod-container/security-context/

    >>> is_never_root({"allowPrivilegeEscalation": False}, {"runAsUser": 1000}), is_never_root({}, {"runAsUser": 1000})
    (True, False)
    """
    if not own or own.get("allowPrivilegeEscalation") is not False:
        return False
    context = {**(pods or {}), **own}
    user = context.get("runAsUser")
    return bool(user) or (user is None and context.get("runAsNonRoot") is True)


def read_container(
    container: Mapping[str, Any],
    kind: ContainerKind,
    vendors: Iterable[Asked],
    status: Mapping[str, Any] | None,
    moved: Mapping[str, str | int] | None = None,
    *,
    is_never_root: bool = False,
) -> Container:
    """Return one container of a Pod; *status* is its entry in the Pod's status, *moved* what left its limits."""
    resources = with_moved(container.get("resources") or {}, moved)
    env = container.get("env")
    names = {*(resources.get("limits") or ()), *(resources.get("requests") or ())}
    asked = [one for one in vendors if not names.isdisjoint(one.resource_set)] if names else []
    return Container(
        name=container.get("name") or "",
        kind=kind,
        requests=tuple([found for each in asked if (found := each.parse_request(resources)) and found.count > 0]),
        state=state_of(status) if status else ContainerState.WAITING,
        started_at=started_at(status) if status else None,
        id=id_of(status) if status else "",
        is_control_disabled=is_control_disabled(env) if env else False,
        is_privileged=(container.get("securityContext") or {}).get("privileged") is True,
        is_never_root=is_never_root,
        choices=choices_of(env) if env else {},
        resources=resources,
    )
