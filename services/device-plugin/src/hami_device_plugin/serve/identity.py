"""
Allocate by identity: ask the kubelet who owns the granted replicas, once it can tell.

Allocate answers at once, for nobody in particular, with the name of a CDI device made for this answer. When the kubelet
calls PreStartContainer it has written down which container that answer was for; only then the container's shares are
read from its Pod and put into the CDI spec the runtime is about to read. Nothing is remembered here between the two
calls: the kubelet's checkpoint is the record, so this process may be replaced in between.
Must never give a container shares that are not its own; every doubt is an error, which the kubelet answers by asking
again.
Neighbours: `owner` and `pods` decide, `cdi_files` and `files` write, `calls` hands in the outside world.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.files import make_world_writable, prepare_container
from hami_device_plugin.decide import cdi
from hami_device_plugin.decide.allocation import (
    VISIBLE_DEVICES,
    Container,
    Grant,
    GrantPolicy,
    allocate,
    container_directory,
    node_environment,
)
from hami_device_plugin.decide.owner import Entry, Listed, contradiction, named, owner
from hami_device_plugin.decide.pending import PreferredRequest, is_pending, preferred
from hami_device_plugin.decide.pods import Pod, assign
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares
from hamicommon.vendors import Vendor
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.pod_devices import decode_pod_devices, encode_pod_devices

SETTLE_SECONDS = 0.03
"""
Time a runtime gets to notice a spec that changed, before the kubelet is answered.

containerd refreshes by inotify. Only a container that starts again can find an older spec under its device's name, and
that one names the same shares.
"""
LABEL_BYTES_MAX = 63


class IdentityError(HamiError):
    """A container cannot be given its shares now."""


@dataclass(frozen=True, slots=True)
class KubeletAccess:
    """What identity allocation asks of the outside."""

    entries: Callable[[], tuple[Entry, ...]]
    """Reads the kubelet's checkpoint."""
    listed: Callable[[], Awaitable[Sequence[Listed]]]
    """Asks the kubelet's PodResources API."""
    pod: Callable[[str], Awaitable[Pod]]
    """Returns the Pod of a UID, waiting while the watch lags behind the kubelet."""
    library: Callable[[], str]
    """Host path of the library to mount."""


class IdentityAllocator:
    """Answers Allocate and PreStartContainer of one resource on one Node."""

    def __init__(
        self,
        access: KubeletAccess,
        *,
        node: str,
        resource: str,
        vendor: Vendor,
        cdi_root: Path,
        policy: GrantPolicy,
        offered: Set[str],
    ) -> None:
        """Serve *resource* on *node*, which offers the devices of the UUIDs *offered*; specs go to *cdi_root*."""
        self._access = access
        self._node = node
        self._resource = resource
        self._vendor = vendor
        self._cdi_root = cdi_root
        self._policy = policy
        self._offered = offered

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Grant, ...]:
        """
        Return a grant per container that names a fresh CDI device and nothing else of the container.

        It shows no device, so that a runtime which ignores CDI gives none.
        """
        env = node_environment(self._policy) | {VISIBLE_DEVICES: "void"}
        return tuple(Grant(env=env, cdi_devices=(cdi.qualified(cdi.new_device()),)) for _ in requests)

    async def pre_start(self, replicas: frozenset[str]) -> Pod | None:
        """
        Prepare the container that holds *replicas*, and return its Pod; None where it was not allocated by identity.

        Raises:
            HamiError: it cannot be prepared now; the message names the Pod, the container and what is missing.
        """
        entries = await asyncio.to_thread(self._access.entries)
        found = owner(replicas, self._resource, entries)
        devices = [(container, device) for container, device in found.devices if device]
        if not devices:
            return None
        pod, listed = await asyncio.gather(self._access.pod(found.pod_uid), self._access.listed())
        objection = contradiction(replicas, pod.namespace, pod.name, listed)
        if objection:
            raise IdentityError(objection)
        shares = granted_shares(pod, self._node, self._vendor)
        grants = [
            (device, self._container(pod, container), self._checked(pod, container, shares, replicas))
            for container, device in devices
        ]
        if await asyncio.to_thread(self._prepare, grants):
            await asyncio.sleep(SETTLE_SECONDS)
        return pod

    def _container(self, pod: Pod, name: str) -> Container:
        switch = next((found.is_control_disabled for found in pod.containers if found.name == name), False)
        return Container(pod.uid, name, is_control_disabled=switch)

    def _checked(
        self, pod: Pod, container: str, shares: Mapping[str, ContainerShares], replicas: frozenset[str]
    ) -> ContainerShares:
        granted = shares.get(container, ())
        if len(granted) != len(replicas):
            raise IdentityError(
                f"Pod {pod}, container {container}: annotation {self._vendor.allocated_key} grants {len(granted)} "
                f"devices, the kubelet granted {len(replicas)} ({named(replicas)})"
            )
        strangers = [share.uuid for share in granted if share.uuid not in self._offered]
        if strangers:
            raise IdentityError(
                f"Pod {pod}, container {container}: granted device {strangers[0]} is not one of Node {self._node}"
            )
        return granted

    def _prepare(self, grants: Sequence[tuple[str, Container, ContainerShares]]) -> bool:
        """
        Write what each container needs on the host, its spec last, and return whether a spec changed.
        """
        make_world_writable(Path(self._policy.lock_directory))
        changed = False
        for device, container, shares in grants:
            region = device.removeprefix(cdi.DEVICE_PREFIX)
            directory = Path(container_directory(self._policy.hook_path, container.pod_uid, container.name))
            prepare_container(directory, f"{region}.cache")
            grant = allocate(shares, container, self._policy, library=self._access.library(), region=region)
            changed |= cdi_files.write_spec(self._cdi_root, container.pod_uid, device, grant)
        return changed


def granted_shares(pod: Pod, node: str, vendor: Vendor) -> dict[str, ContainerShares]:
    """
    Return what *pod* was granted on *node*, per container.

    Raises:
        IdentityError: it carries no readable allocation for this Node.
    """
    text = pod.annotations.get(vendor.allocated_key)
    if text is None:
        raise IdentityError(f"Pod {pod} has no annotation {vendor.allocated_key}: was it bound by HAMi's scheduler?")
    chosen = pod.annotations.get(keys.POD_NODE, node)
    if chosen != node:
        raise IdentityError(f"Pod {pod}: annotation {keys.POD_NODE} is {chosen!r}, but it runs on Node {node!r}")
    try:
        shares = decode_pod_devices(text)
    except DecodeError as error:
        raise IdentityError(f"Pod {pod}: annotation {vendor.allocated_key}: {error}") from error
    placed = assign(shares, pod.containers)
    return {container.name: granted for container, granted in zip(pod.containers, placed, strict=True)}


def hint(
    pods: Iterable[Pod], node: str, vendor: Vendor, requests: Sequence[PreferredRequest]
) -> list[list[str] | None]:
    """
    Return replicas of the devices that a Pod waiting on *node* was granted, per request; None where none fits.

    The kubelet does not say whom it asks for, so this may be about another Pod. That does no harm: replicas are tokens,
    and the shares come from the Pod that the kubelet names later.
    """
    waiting = [pod for pod in pods if is_pending(pod, node)]
    lists: list[ContainerShares] = []
    for pod in sorted(waiting, key=lambda pod: (pod.annotations.get(keys.BIND_TIME, ""), pod.uid)):
        with suppress(DecodeError):
            lists += decode_pod_devices(pod.annotations.get(vendor.to_allocate_key, ""))
    return [_first_fit(lists, request) for request in requests]


def _first_fit(lists: Sequence[ContainerShares], request: PreferredRequest) -> list[str] | None:
    fitting = (preferred((granted,), (request,))[0] for granted in lists if len(granted) == request.size)
    return next((answer for answer in fitting if answer is not None), None)


def confirmation(pod: Pod, node: str, vendor: Vendor) -> dict[str, Any] | None:
    """
    Return the merge patch that says *pod*'s allocation arrived; None where the Pod says so already.

    The UID makes it fail on another Pod of the same name.
    """
    annotations = {
        keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS,
        vendor.to_allocate_key: encode_pod_devices(((),) * len(pod.containers)),
    }
    labels = {keys.POD_NODE: node} if len(node.encode()) <= LABEL_BYTES_MAX else {}
    is_consumed = not pod.annotations.get(vendor.to_allocate_key, "").strip(";")
    has_labels = labels.items() <= pod.labels.items()
    if pod.annotations.get(keys.BIND_PHASE) == keys.BIND_PHASE_SUCCESS and is_consumed and has_labels:
        return None
    return {"metadata": {"uid": pod.uid, "annotations": annotations, "labels": labels}}
