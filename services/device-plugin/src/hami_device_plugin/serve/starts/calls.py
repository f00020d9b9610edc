"""
Answer the kubelet's calls, by identity or under the lock, and mark Pods as allocated.

Owns which of the two ways answers a call. PreStartContainer always goes by identity: the checkpoint says how each
container was allocated, which may have been before the mode changed.
Neighbours: `identity` and `lock` allocate, `kubelet` brings the calls, `session` wires them.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import library
from hami_device_plugin.adapters.checkpoint import FILE_NAME, Checkpoint, CheckpointError
from hami_device_plugin.adapters.generator import roots
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.kubelet import PodResources
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocation import CONTROL_NODES, Grant, GrantPolicy, Library
from hami_device_plugin.decide.cdi.strategy import Strategy
from hami_device_plugin.decide.confirmation import confirmation
from hami_device_plugin.decide.enforcement import Enforcement
from hami_device_plugin.decide.inventory import FoundDevice
from hami_device_plugin.decide.mode import Mode
from hami_device_plugin.decide.owner import Entry, OwnerError
from hami_device_plugin.decide.pending import hint
from hami_device_plugin.decide.pods import Pod
from hami_device_plugin.decide.replicas.preference import Preference, PreferredRequest
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.hardware.driver_part import DriverPart
from hami_device_plugin.serve.hardware.enforcement import limit_hook
from hami_device_plugin.serve.hardware.link_loop import LinkLoop
from hami_device_plugin.serve.mig.instances import Instances
from hami_device_plugin.serve.mig.locate import InstanceLocator
from hami_device_plugin.serve.starts.identity import IdentityAllocator, KubeletAccess
from hami_device_plugin.serve.starts.lock import LockAccess, LockAllocator
from hami_device_plugin.serve.starts.shared_read import SharedRead
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, Device
from hamicommon.vendor import Vendor

T = TypeVar("T")

CONFIRM_SECONDS = 2.0
"""How long one try to mark a Pod takes at most; `node_loop` tries again."""
CHECKPOINT_PAUSE_SECONDS = 0.002
LIST_PAUSE_SECONDS = 0.01
"""The kubelet answers 100 lists a second."""
IMEX_CHANNEL = "/dev/nvidia-caps-imex-channels/channel{}"

logger = structlog.get_logger()


class ImexError(HamiError):
    """A required IMEX channel does not exist."""


class Calls:
    """The answers of one session."""

    def __init__(
        self,
        config: Config,
        *,
        vendor: Vendor,
        view: NodeKube,
        resources: PodResources,
        links: LinkLoop,
        mode: Mode,
        enforcement: Enforcement,
        driver_part: DriverPart,
        metrics: Metrics,
        locator: InstanceLocator,
        instances: Instances | None = None,
    ) -> None:
        """Answer in *mode*, once `adopt` has named the devices; *instances* creates those of a Node in mode `mig`."""
        self._locator = locator
        self._instances = instances
        self._node = config.node_name
        self._vendor = vendor
        self._view = view
        self._resources = resources
        self._links = links
        self._mode = mode
        self._enforcement = enforcement
        self._driver_part = driver_part
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()
        self._confirmed: set[str] = set()
        """UIDs of Pods that are marked as allocated, or are being marked."""

    def adopt(self, config: Config, found: Sequence[FoundDevice], offered: Sequence[Device]) -> None:
        """
        Answer by *config* from now on, for the devices *offered* of those *found*.

        Calls in progress end under the settings they started with.

        Raises:
            ImexError: a required channel does not exist.
        """
        policy = grant_policy(config, found, self._driver_part.strategy)
        self._by_identity = self._identity(config, policy, found, offered)
        self._by_lock = self._lock(config, policy)
        self._preference = Preference(config.preference, {device.id: device.count for device in offered})

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Grant, ...]:
        """Answer Allocate."""
        allocator = self._by_identity if self._mode.is_identity else self._by_lock
        return await self._counted("allocate", allocator.allocate(requests))

    async def preferred(self, requests: Sequence[PreferredRequest]) -> Sequence[Sequence[str] | None]:
        """
        Answer GetPreferredAllocation: by the annotation of a Pod that waits, else by the configured preference.

        None if neither has an answer. Allocate then reports the problem.
        """
        rated = self._links.scores
        preference = self._preference if rated is None else replace(self._preference, pair_scores=rated.scores)
        return [
            preference.choose(request) if answer is None else answer
            for request, answer in zip(requests, await self._annotated(requests), strict=True)
        ]

    async def pre_start(self, replicas: frozenset[str]) -> None:
        """Answer PreStartContainer."""
        began = time.monotonic()
        await self._counted("pre_start", self._pre_start(replicas))
        self._metrics.pre_start_seconds.observe(time.monotonic() - began)

    def gets_library(self, pod: Pod, shares: ContainerShares) -> bool:
        """Return whether a container of *pod* with *shares* gets the library; False if it cannot start."""
        return self._by_identity.gets_library(pod, shares)

    async def confirm(self, pod: Pod) -> None:
        """
        Mark *pod* as allocated unless it is marked; a failure is logged.

        Each Pod is marked once: the watch may still show it without the mark.
        """
        patch = confirmation(pod, self._node, self._vendor)
        if patch is None or pod.uid in self._confirmed:
            return
        self._confirmed.intersection_update(self._view.pods)
        self._confirmed.add(pod.uid)
        try:
            async with asyncio.timeout(CONFIRM_SECONDS):
                await self._view.patch_pod(pod, patch)
        except asyncio.CancelledError:
            self._confirmed.discard(pod.uid)
            raise
        except (HamiError, TimeoutError) as error:
            self._confirmed.discard(pod.uid)
            self._metrics.pod_confirmations.labels("error").inc()
            logger.warning("Pod not marked as allocated yet", pod=str(pod), error=str(error) or "no answer in time")
        else:
            self._metrics.pod_confirmations.labels("ok").inc()

    def _identity(
        self, config: Config, policy: GrantPolicy, found: Sequence[FoundDevice], offered: Sequence[Device]
    ) -> IdentityAllocator:
        checkpoint = Checkpoint(config.plugin_directory / FILE_NAME)

        async def entries() -> Sequence[Entry]:
            # Without a thread: the kubelet has just written the file, so that it is in memory.
            return checkpoint.read()

        access = KubeletAccess(
            entries=SharedRead(entries, CHECKPOINT_PAUSE_SECONDS),
            listed=SharedRead(self._resources.listed, LIST_PAUSE_SECONDS),
            pod=self._view.wait_pod,
            library=lambda: _host_library(config),
            granted=self._locator.granted,
            instances=self._instances,
            driver=self._driver_part.part,
            expect=self._driver_part.expect,
        )
        return IdentityAllocator(
            access,
            node=config.node_name,
            resource=config.resource,
            vendor=self._vendor,
            cdi_root=Path(config.cdi_root),
            policy=policy,
            offered=frozenset(device.id for device in offered),
            hook=self._driver_part.hook,
            enforcement=self._enforcement,
            memory_bytes={device.uuid: device.memory_bytes for device in found if device.memory_bytes is not None},
            limit_hook=limit_hook(config),
        )

    def _lock(self, config: Config, policy: GrantPolicy) -> LockAllocator:
        access = LockAccess(
            lock=self._view.read_lock,
            pod=self._view.read_pod,
            pods=self._view.read_pods,
            annotate=self._view.annotate_pod,
            release=self._view.release_lock,
            library=lambda: _host_library(config),
            granted=self._locator.granted,
            instances=self._instances,
        )
        return LockAllocator(
            access,
            self._one_at_a_time,
            node=config.node_name,
            vendor=self._vendor,
            vendor_keys=[known.key for known in config.device_config.vendors()],
            policy=policy,
            enforcement=self._enforcement,
            follows_kubelet=config.follows_kubelet,
        )

    async def _annotated(self, requests: Sequence[PreferredRequest]) -> Sequence[Sequence[str] | None]:
        """
        Return, for each request, replicas of the devices in a waiting Pod's annotation; None if there are none.
        """
        if self._mode.is_identity:
            return hint(self._view.pods.values(), self._node, self._vendor, requests)
        try:
            return await self._by_lock.preferred(requests)
        except HamiError as error:
            logger.warning("No annotation names the preferred devices", error=str(error))
            return [None] * len(requests)

    async def _pre_start(self, replicas: frozenset[str]) -> None:
        try:
            pod = await self._by_identity.pre_start(replicas)
        except (CheckpointError, OwnerError):
            if self._mode.is_identity:
                raise
            # Under the lock Allocate gave the container everything.
            return
        if pod is not None:
            logger.info("Container prepared", pod=str(pod), replicas=sorted(replicas))
            self._view.changed.set()  # node_loop marks the Pod; the container does not wait for the API server.

    async def _counted(self, call: str, answer: Awaitable[T]) -> T:
        try:
            result = await answer
        except HamiError as error:
            self._metrics.allocations.labels(call, "error").inc()
            logger.warning("Devices not handed out", call=call, error=str(error))
            raise
        self._metrics.allocations.labels(call, "ok").inc()
        return result


def grant_policy(config: Config, found: Sequence[FoundDevice], strategy: Strategy) -> GrantPolicy:
    """
    Return what every container of this Node gets by *strategy*, for the devices *found*.

    Raises:
        ImexError: a required channel does not exist.
    """
    _, device_root = roots(config.driver.root, config.driver.here, config.driver.dev_root)

    def exists(path: str) -> bool:
        return Path(f"{device_root.here.rstrip('/')}{path}").exists()

    features = config.features
    channels = tuple(n for n in features.imex_channels if exists(IMEX_CHANNEL.format(n)))
    if config.is_imex_required and channels != features.imex_channels:
        raise ImexError(f"--imex-required: {IMEX_CHANNEL.format(features.imex_channels[0])} does not exist")
    # Under native CDI the driver's part has the device files.
    is_passing = config.is_passing_device_nodes and not strategy.is_native
    return GrantPolicy(
        hook_path=config.hook_path,
        lock_directory=config.lock_directory,
        list_strategies=strategy.names,
        annotation_prefix=config.cdi_annotation_prefix,
        is_oversubscribed=config.sharing.memory_scaling > 1,
        lib_cuda_log_level=config.lib_cuda_log_level,
        is_core_limit_disabled=config.is_core_limit_disabled,
        gdrcopy=features.gdrcopy,
        gds=features.gds,
        mofed=features.mofed,
        imex_channels=channels,
        indices={device.uuid: device.index for device in found} if config.is_listed_by_index else None,
        minors={device.uuid: device.minor for device in found} if is_passing else None,
        dev_root=device_root.host,
        control_nodes=tuple(path for path in CONTROL_NODES if is_passing and exists(path)),
        is_licensed=(config.vgpu_directory / "license").exists(),
    )


def _host_library(config: Config) -> Library:
    return library.host_library(config.vgpu_directory, __version__)
