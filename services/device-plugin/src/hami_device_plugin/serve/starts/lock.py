"""
Allocate under the Node's lock, as HAMi does, on Nodes that cannot allocate by identity.

The scheduler binds one Pod at a time to this Node, and the lock names it. Its containers are served in order. When the
last one has its devices, the Pod is marked as allocated and the lock is released. After a failure the Pod is marked as
failed, because the kubelet does not retry it.
Neighbours: `pending` decides, `kube` reads and writes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go
(Allocate)
"""

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from hami_device_plugin.adapters.files import host_files_of, make_world_writable
from hami_device_plugin.adapters.regions import prepare_directory
from hami_device_plugin.decide.allocation import (
    Container,
    Grant,
    GrantPolicy,
    Library,
    allocate,
    container_directory,
)
from hami_device_plugin.decide.enforcement import Enforcement, check_demand
from hami_device_plugin.decide.mig.grant import instance_grant
from hami_device_plugin.decide.pending import (
    PendingError,
    chosen_by_kubelet,
    is_allocated,
    is_pending,
    preferred,
    recipient,
    take_next,
)
from hami_device_plugin.decide.pods import Pod
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hami_device_plugin.serve.mig.instances import Granted, Instances
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, PodShares
from hamicommon.vendor import Vendor
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.node_lock import decode_node_lock
from hamicommon.wire.pod_devices import decode_pod_devices, encode_pod_devices

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class LockAccess:
    """What allocation under the lock reads and writes; each function raises `HamiError` if it fails."""

    lock: Callable[[], Awaitable[str | None]]
    """Reads the Node's lock annotation; None if there is none."""
    pod: Callable[[str, str], Awaitable[Pod]]
    """Reads a Pod by namespace and name."""
    pods: Callable[[], Awaitable[Sequence[Pod]]]
    """Reads the Pods bound to this Node."""
    annotate: Callable[[Pod, dict[str, str]], Awaitable[None]]
    """Merges annotations into a Pod."""
    release: Callable[[str, str], Awaitable[None]]
    """Releases the Node's lock if the Pod of this namespace and name holds it."""
    library: Callable[[], Library]
    """Returns the library to mount."""
    granted: Granted
    """Returns what a policy gives of some MIG instances."""
    instances: Instances | None = None
    """Creates a container's MIG instances; None unless the Node is in mode `mig`."""


class LockAllocator:
    """Answers Allocate and GetPreferredAllocation for one resource on one Node, one Allocate at a time."""

    def __init__(
        self,
        access: LockAccess,
        one_at_a_time: asyncio.Lock,
        *,
        node: str,
        vendor: Vendor,
        vendor_keys: Sequence[str],
        policy: GrantPolicy,
        enforcement: Enforcement,
        follows_kubelet: bool,
    ) -> None:
        """
        Serve *node*; Allocate holds *one_at_a_time*.

        *follows_kubelet* takes the devices of the replicas that the kubelet picked, not the scheduler's.
        """
        self._access = access
        self._node = node
        self._vendor = vendor
        self._vendor_keys = vendor_keys
        self._policy = policy
        self._enforcement = enforcement
        self._follows_kubelet = follows_kubelet
        self._one_at_a_time = one_at_a_time

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Grant, ...]:
        """
        Return the grants of the pending Pod's next containers, one for each of *requests*.

        Raises:
            HamiError: no Pod is pending, and nothing was changed. Or the Pod's allocation does not match the call, and
                the Pod was marked as failed and the lock released.
        """
        async with self._one_at_a_time:
            pod = await self._pending_pod()
            try:
                check_demand(pod.annotations, self._enforcement, is_oversubscribed=self._policy.is_oversubscribed)
                served, left = self._serve(pod, requests)
                grants = await self._grants(pod, served)
                await self._access.annotate(pod, {self._vendor.to_allocate_key: encode_pod_devices(left)})
            except HamiError:
                await self._fail(pod)
                raise
            await self._finish(pod)
            return grants

    async def _grants(self, pod: Pod, served: Sequence[tuple[Container, ContainerShares]]) -> tuple[Grant, ...]:
        instances = self._access.instances
        if instances is None:
            return await asyncio.to_thread(lambda: tuple(self._grant(*found) for found in served))
        granted = [
            await self._access.granted(await instances(pod, container.name, shares), self._policy)
            for container, shares in served
        ]
        return tuple(instance_grant(found, self._policy) for found in granted)

    async def preferred(self, requests: Sequence[PreferredRequest]) -> list[list[str] | None]:
        """
        Return, for each request, the replicas of the devices that the pending Pod was granted.
        """
        pod = await self._pending_pod()
        return preferred(self._to_allocate(pod), requests)

    async def _pending_pod(self) -> Pod:
        text = await self._access.lock()
        if text is not None:
            try:
                lock = decode_node_lock(text)
            except DecodeError as error:
                raise PendingError(f"malformed lock annotation: {keys.NODE_LOCK}={text!r}: {error}") from error
            if lock.namespace is not None and lock.pod is not None:
                return await self._access.pod(lock.namespace, lock.pod)
        for pod in await self._access.pods():
            if is_pending(pod, self._node):
                return pod
        raise PendingError(f"no binding pod found on node {self._node}")

    def _serve(
        self, pod: Pod, requests: Sequence[Sequence[str]]
    ) -> tuple[list[tuple[Container, ContainerShares]], PodShares]:
        """
        Return the next containers of *pod* and their shares, one for each of *requests*, and the shares left.
        """
        left = self._to_allocate(pod)
        whole = self._allocated(pod) or left
        served = []
        for replicas in requests:
            place, shares, left = take_next(left)
            found = recipient(whole, place, pod.containers)
            if len(shares) != len(replicas):
                raise PendingError(
                    f"device number not matched: Pod {pod}, container {found.name} was granted {len(shares)}, "
                    f"the kubelet asks for {len(replicas)}"
                )
            if self._follows_kubelet:
                shares = chosen_by_kubelet(shares, replicas)
            served.append((Container(pod.uid, found.name, found.is_control_disabled), shares))
        return served, left

    def _grant(self, container: Container, shares: ContainerShares) -> Grant:
        library = self._access.library()
        directory = container_directory(self._policy.hook_path, container.pod_uid, container.name)
        with host_files_of(f"Container {container.name} of Pod {container.pod_uid} cannot be prepared"):
            prepare_directory(Path(directory))
            if library.is_hamis:
                make_world_writable(Path(self._policy.lock_directory))
        return allocate(shares, container, self._policy, library=library, region=str(uuid.uuid4()))

    def _to_allocate(self, pod: Pod) -> PodShares:
        key = self._vendor.to_allocate_key
        text = pod.annotations.get(key)
        if text is None:
            raise PendingError(f"Pod {pod} has no annotation {key}")
        try:
            return decode_pod_devices(text)
        except DecodeError as error:
            raise PendingError(f"pod annotation format error: Pod {pod}, {key}: {error}") from error

    def _allocated(self, pod: Pod) -> PodShares:
        try:
            return decode_pod_devices(pod.annotations.get(self._vendor.allocated_key, ""))
        except DecodeError:
            return ()

    async def _fail(self, pod: Pod) -> None:
        """
        Mark *pod* as failed and release the lock; each is tried even if the other fails.
        """
        for write in (
            self._access.annotate(pod, {keys.BIND_PHASE: keys.BIND_PHASE_FAILED}),
            self._access.release(pod.namespace, pod.name),
        ):
            try:
                await write
            except HamiError as error:
                logger.warning("Cannot record a failed allocation", pod=str(pod), error=str(error))

    async def _finish(self, pod: Pod) -> None:
        """
        Mark *pod* as allocated and release the lock, once no container waits.

        If this fails, the container still has its devices, and the scheduler frees the lock when it expires.
        """
        try:
            now = await self._access.pod(pod.namespace, pod.name)
            if is_allocated(now.annotations.get(self._vendor.to_allocate_key, ""), self._vendor_keys):
                await self._access.annotate(pod, {keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS})
                await self._access.release(pod.namespace, pod.name)
        except HamiError as error:
            logger.warning("Cannot record a finished allocation", pod=str(pod), error=str(error))
