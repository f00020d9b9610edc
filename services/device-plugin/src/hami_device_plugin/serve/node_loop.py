"""
Keep the Node's annotations, the marks on its Pods, its lock, and the host's specs and libraries as they should be.

Each step compares the present state with the wanted one and writes the difference. So missed events do not matter, and
neither does the instruction at which an earlier process ended.
Neighbours: `announcement` decides about the Node, `calls` confirms Pods, `session` starts the loops.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, library
from hami_device_plugin.adapters.checkpoint import FILE_NAME, CheckpointError, read_checkpoint
from hami_device_plugin.adapters.files import HostFileError, host_files_of
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.regions import cut_regions
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.announcement import announcement, withdrawal
from hami_device_plugin.decide.cdi.strategy import Strategy
from hami_device_plugin.decide.enforcement import Enforcement
from hami_device_plugin.decide.mode import Mode
from hami_device_plugin.decide.pods import Pod
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.hardware.link_loop import LinkLoop
from hami_device_plugin.serve.starts.calls import Calls
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.runtime.api.kube import KubeError
from hamicommon.runtime.host import unpreloaded
from hamicommon.runtime.host.removal import delete_some
from hamicommon.vendor import Vendor

RECONCILE_SECONDS = 30.0
RETRY_SECONDS = 5.0
BURST_SECONDS = 0.2
"""Pods that start within this time are marked together."""
LIBRARY_SECONDS = 600.0
WITHDRAW_SECONDS = 3.0
DIRECTORIES_SECONDS = 10.0
"""How often region files are measured: as often as the kubelet measures what a Pod stores."""
NAMES_EACH_STEP = 500

logger = structlog.get_logger()


class NodeLoop:
    """The loops of one session."""

    def __init__(
        self,
        config: Config,
        *,
        vendor: Vendor,
        view: NodeKube,
        calls: Calls,
        links: LinkLoop,
        mode: Mode,
        strategy: Strategy,
        enforcement: Enforcement,
        metrics: Metrics,
    ) -> None:
        """Work by *config*, *mode*, *strategy* and *enforcement*."""
        self._vendor = vendor
        self._view = view
        self._calls = calls
        self._links = links
        self._mode = mode
        self._strategy = strategy
        self._enforcement = enforcement
        self._metrics = metrics
        self._cdi_root = Path(config.cdi_root)
        self._vgpu = config.vgpu_directory
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        """Work by *config* from now on."""
        self._config = config
        others = (other.to_allocate_key for other in config.device_config.vendors())
        self._other_keys = [key for key in others if key and key != self._vendor.to_allocate_key]

    async def reconcile(
        self, devices: Callable[[], Sequence[Device]], annotations: Callable[[], Mapping[str, str | None]]
    ) -> None:
        """
        Write what is missing after each change and every 30 s, until cancelled.

        *annotations* returns those of the Node besides the inventory of *devices*; None removes one.
        """
        await self._view.node_reflector.synced.wait()
        await self._view.pod_reflector.synced.wait()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._announce_changes(devices, annotations))
            group.create_task(self._mark_bursts())

    async def _announce_changes(
        self, devices: Callable[[], Sequence[Device]], annotations: Callable[[], Mapping[str, str | None]]
    ) -> None:
        """Announce at once, because the scheduler must not choose a device that has just failed."""
        while True:
            self._view.to_announce.clear()
            try:
                if self._view.node:
                    await self._announce(devices(), annotations(), self._view.annotations)
            except KubeError as error:
                logger.warning("The Node is not up to date", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await _set_or_due(self._view.to_announce)

    async def _mark_bursts(self) -> None:
        """Mark Pods and remove specs a little later, because nothing waits for that and starts come in bursts."""
        while True:
            await asyncio.sleep(BURST_SECONDS)
            self._view.changed.clear()
            try:
                if self._mode.is_identity:
                    await self._release_needless_lock()
                await self._reconcile_specs()
            except (KubeError, HostFileError) as error:
                logger.warning("The Pods of the Node are not up to date", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            await _set_or_due(self._view.changed)

    async def keep_library(self) -> None:
        """Remove unused versions of the library, until cancelled."""
        while True:
            try:
                removed = await asyncio.to_thread(self._remove_libraries)
            except (CheckpointError, OSError) as error:
                logger.info("Old libraries stay, their users are unknown", error=str(error))
            else:
                if removed:
                    logger.info("Removed old libraries", files=removed)
            await asyncio.sleep(LIBRARY_SECONDS)

    async def keep_directories(self) -> None:
        """Delete what containers left, and cut region files that are too large, until cancelled."""
        containers = self._vgpu / "containers"
        known = ""
        while True:
            try:
                cut = await asyncio.to_thread(cut_regions, containers)
                if cut:
                    logger.warning("Region files were larger than any region, and were cut", files=cut)
                await self._delete_removed(containers)
                known = ""
            except OSError as error:
                if str(error) != known:
                    known = str(error)
                    logger.warning("Directories of containers cannot be measured or deleted", error=known)
            await asyncio.sleep(DIRECTORIES_SECONDS)

    async def _delete_removed(self, containers: Path) -> None:
        """Delete what containers left, in steps that use a fifth of a processor at most."""
        is_left = True
        while is_left:
            began = time.monotonic()
            is_left = await asyncio.to_thread(delete_some, containers, NAMES_EACH_STEP)
            await asyncio.sleep(4 * (time.monotonic() - began))

    async def withdraw(self) -> None:
        """Remove the mark that is true only while this plugin runs. A failure is logged."""

        def decide(carried: Mapping[str, str]) -> Mapping[str, str | None]:
            return withdrawal(carried, self._vendor, self._config.wire_version)

        if not decide(self._view.annotations):
            return
        try:
            async with asyncio.timeout(WITHDRAW_SECONDS):
                await self._view.change_annotations(decide)
        except (HamiError, TimeoutError) as error:
            logger.warning("The Node still says that allocation goes by identity", error=str(error))

    async def _release_needless_lock(self) -> None:
        owner = self._view.lock_owner()
        if owner and await self._is_needless(*owner):
            logger.info("Releasing a lock that this Node does not need", namespace=owner[0], pod=owner[1])
            await self._view.release_lock(*owner)

    async def _reconcile_specs(self) -> None:
        """Mark the Pods that have a spec as allocated, and remove the specs of Pods that are gone."""
        with host_files_of("CDI specs cannot be listed"):
            found = await asyncio.to_thread(lambda: list(cdi_files.spec_files(self._cdi_root)))
        # A spec means that PreStartContainer wrote it. Nothing else remembers that the Pod is to be marked.
        prepared = {spec.pod_uid for spec in found} & self._view.pods.keys()
        await asyncio.gather(*(self._calls.confirm(self._view.pods[uid]) for uid in prepared))
        stale = {spec.device for spec in found if spec.pod_uid not in self._view.pods}
        if stale:
            with host_files_of("CDI specs of Pods that are gone cannot be removed"):
                await asyncio.to_thread(cdi_files.remove_specs, self._cdi_root, lambda spec: spec.device in stale)
        with host_files_of("records of Pods that are gone cannot be removed"):
            await asyncio.to_thread(unpreloaded.forget, self._vgpu / "containers", self._is_of_gone_pod)

    def _is_of_gone_pod(self, directory: str) -> bool:
        return directory.partition("_")[0] not in self._view.pods

    async def _is_needless(self, namespace: str, name: str) -> bool:
        """
        Return whether that Pod's lock is needless: the Pod was deleted, or is bound and no plugin waits for it.
        """
        pod = self._view.pod_named(namespace, name)
        return await self._view.is_gone(namespace, name) if pod is None else not self._is_awaited_elsewhere(pod)

    def _is_awaited_elsewhere(self, pod: Pod) -> bool:
        """
        Return whether another vendor's plugin needs the lock, which all vendors share, to find *pod*.
        """
        return any(pod.annotations.get(key, "").strip(";") for key in self._other_keys)

    async def _announce(
        self, devices: Sequence[Device], annotations: Mapping[str, str | None], carried: Mapping[str, str]
    ) -> None:
        rated = self._links.scores if self._config.is_topology_scored else None
        patch = {key: value for key, value in annotations.items() if carried.get(key) != value}
        patch |= announcement(
            devices,
            self._vendor,
            version=self._config.wire_version,
            is_identity=self._mode.is_identity,
            device_list=str(self._strategy),
            enforcement=str(self._enforcement),
            carried=carried,
            now=datetime.now(UTC),
            pair_scores=None if rated is None else rated.scores,
        )
        if patch:
            await self._view.annotate_node(patch)
            self._metrics.node_writes.inc()
            logger.info("Wrote the Node's annotations", keys=sorted(patch), devices=len(devices))

    def _remove_libraries(self) -> list[str]:
        checkpoint = self._config.plugin_directory / FILE_NAME
        entries = read_checkpoint(checkpoint)
        in_use = cdi_files.host_paths(self._cdi_root).union(*(entry.host_paths for entry in entries))
        return library.remove_unused(self._vgpu, __version__, in_use)


async def _set_or_due(event: asyncio.Event) -> None:
    """Wait until *event* is set, at most until the next reconciliation is due."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(RECONCILE_SECONDS):
            await event.wait()
