"""
Allocate under the Node's lock, as HAMi does, on Nodes that cannot allocate by identity.

The scheduler binds one Pod at a time to this Node, and the lock names it. Its containers are served in order, each with
its entry in the grant: the author of the Pod may have written what its other annotation says is left to hand out. When
the last one has its devices, the Pod is marked as allocated and the lock is released. After a failure the Pod is marked
as failed, because the kubelet does not retry it.
Neighbours: `pending` decides, `kube` reads and writes.
Source: https://github.com/Project-HAMi/HAMi/blob/v2.10.0/pkg/device-plugin/nvidiadevice/nvinternal/plugin/server.go
(Allocate)
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from hami_device_plugin.adapters.files import host_files_of, make_world_writable
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.adapters.regions import DIRECTORY_MODE, prepare_directory, write_limits
from hami_device_plugin.decide.allocate.allocation import (
    Container,
    Grant,
    allocate,
    check_count,
    container_directory,
)
from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hami_device_plugin.decide.allocate.container_limits import check_demand
from hami_device_plugin.decide.allocate.pending import (
    PendingError,
    is_allocated,
    is_pending,
    next_place,
    preferred,
    recipient,
    what_is_left,
    without_next,
)
from hami_device_plugin.decide.allocate.pods import check_unprivileged
from hami_device_plugin.decide.mig.grant import instance_grant
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hami_device_plugin.serve.allocate.kubelet_records import KubeletRecords
from hami_device_plugin.serve.allocate.last_line import LastLine
from hami_device_plugin.serve.allocate.served_node import ServedNode
from hami_device_plugin.serve.mig.instances import Realize
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, PodShares
from hamicommon.pod.reading import Pod
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.limits_file import encode_limits_file
from hamicommon.wire.node_lock import decode_node_lock
from hamicommon.wire.pod_devices import decode_pod_devices, encode_pod_devices

SERVED_KEPT = 256
"""Pods whose served containers are remembered; a Node has 110 Pods unless its settings say otherwise."""

logger = structlog.get_logger()


class LockAllocator:
    """Answers Allocate and GetPreferredAllocation on one Node; its caller waits for each Allocate to end."""

    def __init__(
        self,
        node: ServedNode,
        *,
        api: NodeKube,
        kubelet: KubeletRecords,
        last_line: LastLine,
        mig: MigNvml,
        instances: Realize | None,
    ) -> None:
        """Answer by *node*; *instances* are None unless shares are MIG instances."""
        self._node = node
        self._vendor = node.vendor
        self._policy = node.policy
        self._api = api
        self._kubelet = kubelet
        self._last_line = last_line
        self._mig = mig
        self._instances = instances
        self._served: dict[str, int] = {}
        """How many containers of a Pod this process has served, by UID; of the last Pods only."""

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Grant, ...]:
        """
        Return the grants of the pending Pod's next containers, one for each of *requests*.

        Raises:
            HamiError: no Pod is pending, and nothing was changed. Or the Pod's allocation does not match the call, and
                the Pod was marked as failed and the lock released.
        """
        pod = await self._pending_pod()
        try:
            check_demand(pod.annotations, self._node.enforcement, is_oversubscribed=self._policy.is_oversubscribed)
            await self._last_line.check_unseen(pod, self._node.devices)
            served, left = self._serve(pod, requests)
            grants = await self._grants(pod, served)
            await self._api.annotate_pod(pod, {self._vendor.to_allocate_key: encode_pod_devices(left)})
            self._count(pod, len(served))
        except HamiError:
            await self._fail(pod)
            raise
        await self._finish(pod, left)
        return grants

    async def _grants(self, pod: Pod, served: Sequence[tuple[Container, ContainerShares]]) -> tuple[Grant, ...]:
        instances = self._instances
        if instances is None:
            return await asyncio.to_thread(lambda: tuple(self._grant(*found) for found in served))
        granted = [
            await self._mig.granted(await instances(pod, container.name, shares), self._policy)
            for container, shares in served
        ]
        return tuple(instance_grant(found, self._policy) for found in granted)

    async def preferred(self, requests: Sequence[PreferredRequest]) -> list[list[str] | None]:
        """Return, for each request, the replicas of the devices that the pending Pod was granted."""
        pod = await self._pending_pod()
        granted = self._granted(pod)
        place = next_place(granted, self._left(pod, granted))
        return preferred(granted[place:], requests)

    async def _pending_pod(self) -> Pod:
        text = await self._api.read_lock()
        if text is not None:
            try:
                lock = decode_node_lock(text)
            except DecodeError as error:
                raise PendingError(f"malformed lock annotation: {keys.NODE_LOCK}={text!r}: {error}") from error
            if lock.namespace is not None and lock.pod is not None:
                return await self._api.read_pod(lock.namespace, lock.pod)
        for pod in await self._api.read_pods():
            if is_pending(pod, self._node.name) and self._vendor.allocated_key in pod.annotations:
                return pod
        raise PendingError(f"no binding pod found on node {self._node.name}")

    def _serve(
        self, pod: Pod, requests: Sequence[Sequence[str]]
    ) -> tuple[list[tuple[Container, ContainerShares]], PodShares]:
        """Return the next containers of *pod* and their shares, one for each of *requests*, and the shares left."""
        granted = self._granted(pod)
        left = self._left(pod, granted)
        served = []
        for replicas in requests:
            check_count(replicas, self._policy)
            place = next_place(granted, left)
            shares, left = granted[place], without_next(left)
            found = recipient(pod, granted, place, self._vendor)
            check_unprivileged(pod, found.name)
            if len(shares) != len(replicas):
                raise PendingError(
                    f"device number not matched: Pod {pod}, container {found.name} was granted {len(shares)}, "
                    f"the kubelet asks for {len(replicas)}"
                )
            served.append((Container(pod.uid, found.name, found.is_control_disabled, found.choices), shares))
        return served, left

    def _left(self, pod: Pod, granted: PodShares) -> PodShares:
        """Return what of *granted* is left for the containers of *pod* that have no devices yet."""
        key = self._vendor.to_allocate_key
        said = pod.annotations.get(key)
        try:
            written = None if said is None else decode_pod_devices(said)
        except DecodeError:
            written = None
        known = [count for count in (self._kubelet.served(pod.uid), self._served.get(pod.uid)) if count is not None]
        grants = pod.annotations[self._vendor.allocated_key]
        sentence = f"Pod {pod}: {key} is {said!r}, {self._vendor.allocated_key} grants {grants!r}"
        try:
            left, agrees = what_is_left(granted, written, max(known, default=None))
        except PendingError as error:
            raise PendingError(f"{sentence}: {error}") from error
        if not agrees:
            logger.warning("A Pod's annotation is not what is left of its grant, and the grant counts", said=sentence)
        return left

    def _count(self, pod: Pod, containers: int) -> None:
        self._served[pod.uid] = self._served.pop(pod.uid, 0) + containers
        while len(self._served) > SERVED_KEPT:
            del self._served[next(iter(self._served))]

    def _grant(self, container: Container, shares: ContainerShares) -> Grant:
        library = self._node.library()
        directory = container_directory(self._policy.hook_path, container.pod_uid, container.name)
        with host_files_of(f"Container {container.name} of Pod {container.pod_uid} cannot be prepared"):
            prepare_directory(Path(directory))
            if library.is_hamis:
                make_world_writable(Path(self._policy.lock_directory))
            device = cdi.new_device()
            grant = allocate(shares, container, self._policy, library=library, region=cdi.region_name(device))
            if grant.limits:
                limits = Path(grant.limits_directory)
                limits.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
                write_limits(limits, encode_limits_file(grant.limits))
        return replace(grant, cdi_devices=(cdi.qualified(device),)) if self._node.is_cdi_named else grant

    def _granted(self, pod: Pod) -> PodShares:
        """Return the grant of *pod*, by the annotation that only schedulers write."""
        key = self._vendor.allocated_key
        text = pod.annotations.get(key)
        if text is None:
            raise PendingError(f"Pod {pod} has no annotation {key}: was it bound by HAMi's scheduler?")
        try:
            return decode_pod_devices(text)
        except DecodeError as error:
            raise PendingError(f"pod annotation format error: Pod {pod}, {key}: {error}") from error

    async def _fail(self, pod: Pod) -> None:
        """Mark *pod* as failed and release the lock; each is tried even if the other fails."""
        for write in (
            self._api.annotate_pod(pod, {keys.BIND_PHASE: keys.BIND_PHASE_FAILED}),
            self._api.release_lock(pod.namespace, pod.name),
        ):
            try:
                await write
            except HamiError as error:
                logger.warning("Cannot record a failed allocation", pod=str(pod), error=str(error))

    async def _finish(self, pod: Pod, left: PodShares) -> None:
        """
        Mark *pod* as allocated and release the lock, once nothing is *left* to hand out.

        If this fails, the container still has its devices, and the scheduler frees the lock when it expires.
        """
        if is_allocated(encode_pod_devices(left), self._node.vendor_keys):
            try:
                await self._api.annotate_pod(pod, {keys.BIND_PHASE: keys.BIND_PHASE_SUCCESS})
                await self._api.release_lock(pod.namespace, pod.name)
            except HamiError as error:
                logger.warning("Cannot record a finished allocation", pod=str(pod), error=str(error))
