"""
Answer the kubelet's calls, by identity or under the lock, and mark Pods as allocated.

Owns which of the two ways answers a call. PreStartContainer always goes by identity: the checkpoint says how each
container was allocated, which may have been before the mode changed.
Neighbours: `identity` and `lock` allocate, `adapters.kubelet` brings the calls, `service` starts the server.
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import structlog

from hami_device_plugin.adapters.checkpoint import CheckpointError
from hami_device_plugin.adapters.generator import roots
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocate.allocation import CONTROL_NODES, Grant, GrantPolicy
from hami_device_plugin.decide.allocate.container_limits import ContainerLimits
from hami_device_plugin.decide.allocate.owner import OwnerError
from hami_device_plugin.decide.allocate.pending import hint
from hami_device_plugin.decide.allocate.pods import confirmation
from hami_device_plugin.decide.inventory import FoundDevice
from hami_device_plugin.decide.probe.enforcement import MpsServer
from hami_device_plugin.decide.probe.strategy import Strategy
from hami_device_plugin.decide.replicas.preference import Preference, PreferredRequest
from hami_device_plugin.serve.allocate.identity import IdentityAllocator, Wanted
from hami_device_plugin.serve.allocate.kubelet_records import KubeletRecords
from hami_device_plugin.serve.allocate.last_line import LastLine
from hami_device_plugin.serve.allocate.lock import LockAllocator
from hami_device_plugin.serve.allocate.preparation import Preparer
from hami_device_plugin.serve.allocate.served_node import ServedNode
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.namespaces import Namespaces
from hami_device_plugin.serve.probe.devices import NodeDevices
from hami_device_plugin.serve.probe.enforcement import limit_hook
from hami_device_plugin.serve.probe.findings import Findings
from hami_device_plugin.serve.probe.link_loop import LinkLoop
from hamicommon.errors import HamiError
from hamicommon.model import ContainerShares, Device
from hamicommon.pod.reading import Container, Pod

T = TypeVar("T")

CONFIRM_SECONDS = 2.0
"""How long one try to mark a Pod takes at most; `node_loop` tries again."""
HINT_SECONDS = 0.1
"""How long the kubelet waits for a preference at most, while it admits a Pod that the watch has not shown yet."""
IMEX_CHANNEL = "/dev/nvidia-caps-imex-channels/channel{}"

logger = structlog.get_logger()


class ImexError(HamiError):
    """A required IMEX channel does not exist."""


class Calls:
    """The answers of one session."""

    def __init__(self, context: Context, devices: NodeDevices, found: Findings, links: LinkLoop) -> None:
        """
        Answer for *devices* as probing *found* it right.

        Raises:
            HamiError: the settings require what the Node does not have.
        """
        self._context = context
        self._vendor = context.vendor
        self._view = context.view
        self._metrics = context.metrics
        self._devices = devices
        self._found = found
        self._links = links
        self._mig = MigNvml(context.nvml)
        self._records = KubeletRecords(context)
        self._last_line = LastLine(context, self._records)
        self._one_at_a_time = asyncio.Lock()
        """Held by a call under the Node's lock, which serves one Pod after another."""
        self._confirmed: set[str] = set()
        """UIDs of Pods that are marked as allocated, or are being marked."""
        server = found.enforcement.mps
        self._namespaces = Namespaces(context, server) if isinstance(server, MpsServer) else None
        offered = devices.by(context.config, context.conditions)
        self._instances = devices.instances(offered)
        self.adopt(context.config, offered)

    def adopt(self, config: Config, offered: Sequence[Device]) -> None:
        """
        Answer by *config* from now on, for the devices *offered*.

        Calls in progress end under the settings they started with.

        Raises:
            ImexError: a required channel does not exist.
        """
        node = self._served_node(config, offered)
        driver = self._found.driver_cdi
        self.preparer = Preparer(node, driver=driver, mig=self._mig, namespaces=self._namespaces)
        """What prepares the host by the present settings."""
        self._by_identity = IdentityAllocator(
            node,
            self.preparer,
            kubelet=self._records,
            pods=self._view,
            last_line=self._last_line,
            driver=driver,
            instances=self._instances,
        )
        self._by_lock = LockAllocator(
            node,
            api=self._view,
            kubelet=self._records,
            last_line=self._last_line,
            mig=self._mig,
            instances=self._instances,
        )
        self._preference = Preference(config.preference, {device.id: device.count for device in offered})

    async def allocate(self, requests: Sequence[Sequence[str]]) -> tuple[Grant, ...]:
        """Answer Allocate."""
        if self._is_identity:
            return await self._counted("allocate", self._by_identity.allocate(requests))
        by_lock = self._by_lock
        async with self._one_at_a_time:
            return await self._counted("allocate", by_lock.allocate(requests))

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
        return self.preparer.gets_library(pod.annotations, shares)

    def limits(self, pod: Pod, shares: ContainerShares) -> ContainerLimits:
        """
        Return how a container of *pod* with *shares* is limited.

        Raises:
            EnforcementError: its Pod demands what the Node cannot do.
        """
        return self.preparer.limits(pod.annotations, shares)

    async def keep_namespaces(self) -> None:
        """Keep the namespaces of MPS that limit compute, if any do, until cancelled."""
        if self._namespaces is not None:
            await self._namespaces.run(self._namespace_percent)

    def _namespace_percent(self, container: Container, shares: ContainerShares) -> int | None:
        return self.preparer.namespace_percent(container, shares)

    async def prepare_containers(self, pod: Pod, wanted: Sequence[Wanted]) -> None:
        """
        Prepare the *wanted* containers of a Pod with tokens; `node_loop` marks the Pod.

        Raises:
            HamiError: one cannot be prepared now.
        """
        await self._by_identity.prepare(pod, (), wanted)
        self._view.changed.set()

    async def confirm(self, pod: Pod) -> None:
        """
        Mark *pod* as allocated unless it is marked; a failure is logged.

        Each Pod is marked once: the watch may still show it without the mark.
        """
        patch = confirmation(pod, self._context.config.node_name, self._vendor)
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

    @property
    def _is_identity(self) -> bool:
        return self._found.mode.is_identity

    def _served_node(self, config: Config, offered: Sequence[Device]) -> ServedNode:
        found = self._devices.offered.found
        return ServedNode(
            name=config.node_name,
            resource=config.resource,
            vendor=self._vendor,
            policy=grant_policy(config, found, self._found.driver_cdi.strategy),
            enforcement=self._found.enforcement,
            devices={device.id: device for device in offered},
            cdi_root=Path(config.cdi_root),
            limit_hook=limit_hook(config),
            memory_bytes=self._devices.memory_bytes(),
            memory_margin_mib=config.memory_margin_mib,
            vendor_keys=tuple(known.key for known in config.device_config.vendors()),
            is_cdi_named=self._found.is_cdi_named,
        )

    async def _annotated(self, requests: Sequence[PreferredRequest]) -> Sequence[Sequence[str] | None]:
        """Return, for each request, replicas of the devices in a waiting Pod's annotation; None if there are none."""
        if self._is_identity:
            return await self._hinted(requests)
        try:
            return await self._by_lock.preferred(requests)
        except HamiError as error:
            logger.warning("No annotation names the preferred devices", error=str(error))
            return [None] * len(requests)

    async def _hinted(self, requests: Sequence[PreferredRequest]) -> Sequence[Sequence[str] | None]:
        """
        Return what `hint` says, once the watch has shown a Pod that fits: the kubelet may see a Pod a moment earlier.
        """
        deadline = time.monotonic() + HINT_SECONDS
        while True:
            entries = self._context.checkpoint.of(self._context.config.resource)
            served = {(entry.pod_uid, entry.container) for entry in entries}
            answers = hint(self._view.pods.values(), self._context.config.node_name, self._vendor, served, requests)
            left = deadline - time.monotonic()
            if all(answer is not None for answer in answers) or left <= 0:
                return answers
            await self._view.wait_pods(left)

    async def _pre_start(self, replicas: frozenset[str]) -> None:
        try:
            pod = await self._by_identity.pre_start(replicas)
        except (CheckpointError, OwnerError):
            if self._is_identity:
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
    _, device_root = roots(config.driver_root, config.driver_root_here, config.dev_root)

    def exists(path: str) -> bool:
        return Path(f"{device_root.here.rstrip('/')}{path}").exists()

    channels = tuple(n for n in config.imex_channels if exists(IMEX_CHANNEL.format(n)))
    if config.is_imex_required and channels != config.imex_channels:
        raise ImexError(f"--imex-required: {IMEX_CHANNEL.format(config.imex_channels[0])} does not exist")
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
        gdrcopy=config.gdrcopy,
        gds=config.gds,
        mofed=config.mofed,
        imex_channels=channels,
        indices={device.uuid: device.index for device in found} if config.device_names == "index" else None,
        minors={device.uuid: device.minor for device in found} if is_passing else None,
        dev_root=device_root.host,
        control_nodes=tuple(path for path in CONTROL_NODES if is_passing and exists(path)),
        is_licensed=(config.vgpu_directory / "license").exists(),
        is_one_replica_at_most=config.is_one_replica_at_most,
    )
