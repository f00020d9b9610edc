"""
Allocate by identity: ask the kubelet which container owns the granted replicas.

Allocate cannot know the container, so it answers with a CDI device name made for this answer. When the kubelet calls
PreStartContainer, its checkpoint says which container got that answer. Only then are the container's shares read from
its Pod and written into the CDI spec that the runtime is about to read. The kubelet's checkpoint is the only record
between the two calls, so this process may restart in between.
Must never give a container the shares of another: if anything is unclear, the call fails and the kubelet retries.
Neighbours: `owner` and `pods` decide, `cdi_files` and `files` write, `calls` provides the access.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.files import make_world_writable, prepare_container
from hami_device_plugin.decide import cdi
from hami_device_plugin.decide.allocation import (
    VISIBLE_DEVICES,
    Container,
    Grant,
    GrantPolicy,
    Library,
    allocate,
    container_directory,
    node_environment,
)
from hami_device_plugin.decide.mig.grant import instance_grant
from hami_device_plugin.decide.owner import Entry, Listed, contradiction, named, owner
from hami_device_plugin.decide.pods import Pod, granted_shares
from hami_device_plugin.serve.mig import Instances
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares
from hamicommon.vendor import Vendor

SETTLE_SECONDS = 0.03
"""
How long a runtime gets to notice a changed spec before the kubelet is answered.

containerd notices by inotify. Only a container that restarts can read an older spec under its device's name, and that
spec has the same shares.
"""


class IdentityError(HamiError):
    """A container cannot get its shares now."""


@dataclass(frozen=True, slots=True)
class KubeletAccess:
    """What identity allocation reads from the kubelet, the API server and the host."""

    entries: Callable[[], tuple[Entry, ...]]
    """Reads the kubelet's checkpoint."""
    listed: Callable[[], Awaitable[Sequence[Listed]]]
    """Reads the kubelet's PodResources API."""
    pod: Callable[[str], Awaitable[Pod]]
    """Returns the Pod of a UID, and waits for the watch to deliver it."""
    library: Callable[[], Library]
    """Returns the library to mount."""
    instances: Instances | None = None
    """Creates a container's MIG instances; None unless the Node is in mode `mig`."""


class IdentityAllocator:
    """Answers Allocate and PreStartContainer for one resource on one Node."""

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
        """Serve *resource* on *node*; *offered* are the UUIDs of its devices, and specs go to *cdi_root*."""
        self._access = access
        self._node = node
        self._resource = resource
        self._vendor = vendor
        self._cdi_root = cdi_root
        self._policy = policy
        self._offered = offered

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Grant, ...]:
        """
        Return a grant for each container, with a new CDI device name and no device.

        A runtime that ignores CDI therefore gives the container none.
        """
        env = node_environment(self._policy) | {VISIBLE_DEVICES: "void"}
        return tuple(Grant(env=env, cdi_devices=(cdi.qualified(cdi.new_device()),)) for _ in requests)

    async def pre_start(self, replicas: frozenset[str]) -> Pod | None:
        """
        Prepare the container that holds *replicas* and return its Pod; None if it was not allocated by identity.

        Raises:
            HamiError: it cannot be prepared now; the message names the Pod, the container and what is missing.
        """
        entries = await asyncio.to_thread(self._access.entries)
        found = owner(replicas, self._resource, entries)
        devices = [(container, device) for container, device in found.devices if device]
        if not devices:
            return None
        pod, listed = await asyncio.gather(self._access.pod(found.pod_uid), self._access.listed())
        problem = contradiction(replicas, pod.namespace, pod.name, listed)
        if problem:
            raise IdentityError(problem)
        shares = granted_shares(pod, self._node, self._vendor)
        grants = [
            (device, self._container(pod, container), self._checked(pod, container, shares, replicas))
            for container, device in devices
        ]
        if self._access.instances is None:
            has_changed = await asyncio.to_thread(self._prepare, grants)
        else:
            has_changed = await self._prepare_instances(pod, grants, self._access.instances)
        if has_changed:
            await asyncio.sleep(SETTLE_SECONDS)
        return pod

    def _container(self, pod: Pod, name: str) -> Container:
        switch = next((found.is_control_disabled for found in pod.containers if found.name == name), False)
        return Container(pod.uid, name, is_control_disabled=switch)

    def _checked(
        self, pod: Pod, container: str, shares: Mapping[str, ContainerShares], replicas: frozenset[str]
    ) -> ContainerShares:
        """
        Return the shares of *container*, as many as *replicas* and all of offered devices.
        """
        granted = shares.get(container, ())
        if len(granted) != len(replicas):
            raise IdentityError(
                f"Pod {pod}, container {container}: annotation {self._vendor.allocated_key} grants {len(granted)} "
                f"devices, the kubelet granted {len(replicas)} ({named(replicas)})"
            )
        unknown = [share.uuid for share in granted if share.uuid not in self._offered]
        if unknown:
            raise IdentityError(
                f"Pod {pod}, container {container}: granted device {unknown[0]} is not one of Node {self._node}"
            )
        return granted

    async def _prepare_instances(
        self, pod: Pod, grants: Sequence[tuple[str, Container, ContainerShares]], instances: Instances
    ) -> bool:
        """
        Create each container's MIG instances, write its spec, and return whether a spec changed.
        """
        changed = False
        for device, container, shares in grants:
            grant = instance_grant(await instances(pod, container.name, shares), self._policy)
            changed |= await asyncio.to_thread(cdi_files.write_spec, self._cdi_root, pod.uid, device, grant)
        return changed

    def _prepare(self, grants: Sequence[tuple[str, Container, ContainerShares]]) -> bool:
        """
        Write what each container needs on the host, its spec last, and return whether a spec changed.
        """
        library = self._access.library()
        if library.is_hamis:
            make_world_writable(Path(self._policy.lock_directory))
        changed = False
        for device, container, shares in grants:
            region = device.removeprefix(cdi.DEVICE_PREFIX)
            directory = Path(container_directory(self._policy.hook_path, container.pod_uid, container.name))
            prepare_container(directory, f"{region}.cache")
            grant = allocate(shares, container, self._policy, library=library, region=region)
            changed |= cdi_files.write_spec(self._cdi_root, container.pod_uid, device, grant)
        return changed
