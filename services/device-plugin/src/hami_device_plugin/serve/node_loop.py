"""
Bring about, again and again, what should be: the Node's annotations, confirmed Pods, no stale lock, spec or library.

Each step compares what is with what should be and writes the difference, so it does not matter what was missed while
nobody looked, nor at which instruction an earlier process ended.
Neighbours: `announcement` decides about the Node, `calls` confirms Pods, `session` says when.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, library
from hami_device_plugin.adapters.checkpoint import FILE_NAME, CheckpointError, read_checkpoint
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.config import Config
from hami_device_plugin.decide.announcement import announcement, withdrawal
from hami_device_plugin.decide.mode import Mode
from hami_device_plugin.decide.pods import Pod
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.calls import Calls
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.runtime.kube import KubeError
from hamicommon.vendors import Vendor, all_vendors

RECONCILE_SECONDS = 30.0
RETRY_SECONDS = 5.0
LIBRARY_SECONDS = 600.0
WITHDRAW_SECONDS = 3.0

logger = structlog.get_logger()


class NodeLoop:
    """The upkeep of one life."""

    def __init__(
        self, config: Config, *, vendor: Vendor, view: NodeKube, calls: Calls, mode: Mode, metrics: Metrics
    ) -> None:
        """Keep things as *config* and *mode* want them."""
        self._vendor = vendor
        self._view = view
        self._calls = calls
        self._mode = mode
        self._metrics = metrics
        self._cdi_root = Path(config.cdi_root)
        self._vgpu = Path(config.hook_path) / "vgpu"
        self.adopt(config)

    def adopt(self, config: Config) -> None:
        """Keep things as *config* wants them from now on."""
        self._config = config
        others = (other.to_allocate_key for other in all_vendors(config.device_config))
        self._other_keys = [key for key in others if key and key != self._vendor.to_allocate_key]

    async def reconcile(self, devices: Callable[[], Sequence[Device]]) -> None:
        """Write what is missing at each change that is seen, and every 30 s, until cancelled."""
        await self._view.node_reflector.synced.wait()
        await self._view.pod_reflector.synced.wait()
        while True:
            self._view.changed.clear()
            try:
                await self._step(devices())
                pause = RECONCILE_SECONDS
            except KubeError as error:
                logger.warning("The Node is not up to date", error=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                async with asyncio.timeout(pause):
                    await self._view.changed.wait()
            except TimeoutError:
                continue

    async def keep_library(self) -> None:
        """Remove versions of the library that nobody uses, until cancelled."""
        while True:
            try:
                removed = await asyncio.to_thread(self._remove_libraries)
            except (CheckpointError, OSError) as error:
                logger.info("Old libraries stay, who uses them is not known", error=str(error))
            else:
                if removed:
                    logger.info("Removed old libraries", files=removed)
            await asyncio.sleep(LIBRARY_SECONDS)

    async def withdraw(self) -> None:
        """Take back what is only true while this plugin runs; a failure is logged."""
        patch = withdrawal(self._view.annotations)
        if not patch:
            return
        try:
            async with asyncio.timeout(WITHDRAW_SECONDS):
                await self._view.annotate_node(patch)
        except (HamiError, TimeoutError) as error:
            logger.warning("The Node still says that allocation goes by identity", error=str(error))

    async def _step(self, devices: Sequence[Device]) -> None:
        if self._view.node:
            await self._announce(devices, self._view.annotations)
        owner = self._view.lock_owner()
        if self._mode.is_identity and owner and await self._is_needless(*owner):
            logger.info("Releasing a lock this Node does not need", namespace=owner[0], pod=owner[1])
            await self._view.release_lock(*owner)
        found = await asyncio.to_thread(lambda: list(cdi_files.spec_files(self._cdi_root)))
        for spec in found:
            # A spec means that PreStartContainer came as far as that; the mark may be owed since.
            if spec.pod_uid in self._view.pods:
                await self._calls.confirm(self._view.pods[spec.pod_uid])
        stale = {spec.device for spec in found if spec.pod_uid not in self._view.pods}
        if stale:
            await asyncio.to_thread(cdi_files.remove_specs, self._cdi_root, lambda spec: spec.device in stale)

    async def _is_needless(self, namespace: str, name: str) -> bool:
        """
        Say whether the lock of that Pod does no good: it is bound and no plugin looks for it, or it was deleted.
        """
        pod = self._view.pod_named(namespace, name)
        return await self._view.is_gone(namespace, name) if pod is None else not self._is_awaited_elsewhere(pod)

    def _is_awaited_elsewhere(self, pod: Pod) -> bool:
        """
        Say whether another vendor's plugin still needs the lock, which all vendors share, to find *pod*.
        """
        return any(pod.annotations.get(key, "").strip(";") for key in self._other_keys)

    async def _announce(self, devices: Sequence[Device], carried: Mapping[str, str]) -> None:
        patch = announcement(
            devices,
            self._vendor,
            version=self._config.wire_version,
            is_identity=self._mode.is_identity,
            carried=carried,
            now=datetime.now(UTC),
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
