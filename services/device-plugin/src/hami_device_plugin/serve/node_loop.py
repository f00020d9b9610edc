"""
Keep the Node's annotations, the marks on its Pods, its lock, and the host's specs and libraries as they should be.

Each step compares the present state with the wanted one and writes the difference. So missed events do not matter, and
neither does the instruction at which an earlier process ended.
Neighbours: `announcement` decides about the Node, `calls` confirms Pods, `service` starts the loops.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, library
from hami_device_plugin.adapters.checkpoint import CheckpointError
from hami_device_plugin.adapters.files import HostFileError, host_files_of, label_for_containers
from hami_device_plugin.adapters.regions import cut_regions, forget_limits
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocate.allocation import CONTAINERS
from hami_device_plugin.decide.allocate.pods import unserved
from hami_device_plugin.decide.announcement import announcement, withdrawal
from hami_device_plugin.serve.allocate.calls import Calls
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.probe.findings import Findings
from hami_device_plugin.serve.probe.link_loop import LinkLoop
from hamicommon.dra.grants import CLAIMS
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.runtime.api.kube import KubeError
from hamicommon.runtime.host import records
from hamicommon.runtime.host.removal import delete_some

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


def install_files(config: Config) -> None:
    """
    Install the library for containers, and remove what a killed process left.

    Raises:
        HamiError: a file of the host cannot be used.
    """
    vgpu = config.vgpu_directory
    if config.library:
        library.install(Path(config.library), vgpu, __version__)
    library.write_preload(vgpu)
    with host_files_of("--cdi-root cannot be used"):
        cdi_files.remove_unfinished(Path(config.cdi_root))
    for path in (library.host_library(vgpu, __version__).host_path, str(vgpu / library.PRELOAD_NAME)):
        problem = label_for_containers(Path(path))
        if problem is not None:
            logger.warning("SELinux may keep containers from a file", error=problem)


class NodeLoop:
    """The loops of one session."""

    def __init__(self, context: Context, found: Findings, calls: Calls, links: LinkLoop) -> None:
        """Keep the Node as probing *found* that it works."""
        self._vendor = context.vendor
        self._view = context.view
        self._checkpoint = context.checkpoint
        self._metrics = context.metrics
        self._found = found
        self._calls = calls
        self._links = links
        self._cdi_root = Path(context.config.cdi_root)
        self._vgpu = context.config.vgpu_directory
        self._is_withdrawn = False
        self._unserved: set[str] = set()
        """Containers that were reported to run without their devices."""
        self.adopt(context.config)

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

        async def announce() -> None:
            # At once, because the scheduler must not choose a device that has just failed.
            self._view.to_announce.clear()
            if self._view.node and not self._is_withdrawn:
                await self._announce(devices(), annotations(), self._view.annotations)

        async with asyncio.TaskGroup() as group:
            group.create_task(_repeat(announce, self._view.to_announce, "The Node is not up to date"))
            group.create_task(_repeat(self._mark, self._view.changed, "The Pods of the Node are not up to date"))

    async def _mark(self) -> None:
        """Mark Pods and remove specs, a little later, because nothing waits for that and starts come in bursts."""
        await asyncio.sleep(BURST_SECONDS)
        self._view.changed.clear()
        if self._found.mode.is_identity:
            await self._release_needless_lock()
        await self._reconcile_specs()

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
        folders = [self._vgpu / CONTAINERS, self._vgpu / CLAIMS]
        known = ""
        while True:
            try:
                for folder in folders:
                    cut = await asyncio.to_thread(cut_regions, folder)
                    if cut:
                        logger.warning("Region files were larger than any region, and were cut", files=cut)
                    await self._delete_removed(folder)
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
        """Say in the Node's annotations that this plugin stops, from now on. A failure is logged."""
        self._is_withdrawn = True

        def decide(carried: Mapping[str, str]) -> Mapping[str, str | None]:
            return withdrawal(carried, self._vendor, self._config.wire_version)

        if not decide(self._view.annotations):
            return
        try:
            async with asyncio.timeout(WITHDRAW_SECONDS):
                await self._view.change_annotations(decide)
        except (HamiError, TimeoutError) as error:
            logger.warning("The Node still offers devices, by identity", error=str(error))

    async def _release_needless_lock(self) -> None:
        """Release the lock if its Pod was deleted, or is bound here and no other vendor's plugin waits for it."""
        owner = self._view.lock_owner()
        if owner is None:
            return
        pod = self._view.pod_named(*owner)
        if pod is None:
            is_needed = not await self._view.is_gone(*owner)
        else:
            is_needed = any(pod.annotations.get(key, "").strip(";") for key in self._other_keys)
        if not is_needed:
            logger.info("Releasing a lock that this Node does not need", namespace=owner[0], pod=owner[1])
            await self._view.release_lock(*owner)

    async def _reconcile_specs(self) -> None:
        """Mark the Pods that have a spec as allocated, and remove the specs of Pods that are gone."""
        with host_files_of("CDI specs cannot be listed"):
            found = await asyncio.to_thread(lambda: list(cdi_files.spec_files(self._cdi_root)))
        # A spec means that PreStartContainer wrote it. Nothing else remembers that the Pod is to be marked.
        prepared = {spec.pod_uid for spec in found} & self._view.pods.keys()
        self._tell_unserved(prepared)
        await asyncio.gather(*(self._calls.confirm(self._view.pods[uid]) for uid in prepared))
        stale = [spec.path for spec in found if spec.pod_uid not in self._view.pods]
        if stale:
            with host_files_of("CDI specs of Pods that are gone cannot be removed"):
                await asyncio.to_thread(_remove, stale)
        with host_files_of("records of Pods that are gone cannot be removed"):
            await asyncio.to_thread(records.forget, self._vgpu / CONTAINERS, self._is_of_gone_pod)
            await asyncio.to_thread(forget_limits, self._vgpu / CONTAINERS, self._is_of_gone_pod)

    def _tell_unserved(self, prepared: Collection[str]) -> None:
        """Report containers that run without the devices of their grants."""
        entries = self._checkpoint.of(self._config.resource)
        found = unserved(self._view.pods, entries, prepared, self._config.node_name, self._vendor)
        self._metrics.unserved.set(len(found))
        for key in found.keys() - self._unserved:
            text = f"{found[key]} runs without its devices: the kubelet did not ask for them. Delete the Pod"
            self._view.report("ContainerWithoutDevices", text, is_warning=True, about=key)
            logger.warning("A container runs without its devices", container=found[key])
        self._unserved = set(found)

    def _is_of_gone_pod(self, directory: str) -> bool:
        return directory.partition("_")[0] not in self._view.pods

    async def _announce(
        self, devices: Sequence[Device], annotations: Mapping[str, str | None], carried: Mapping[str, str]
    ) -> None:
        rated = self._links.scores if self._config.is_topology_scored else None
        patch = {key: value for key, value in annotations.items() if carried.get(key) != value}
        announced = self._found.announced(devices)
        patch |= announcement(
            announced if rated is None else replace(announced, pair_scores=rated.scores),
            self._vendor,
            version=self._config.wire_version,
            carried=carried,
            now=datetime.now(UTC),
        )
        if patch:
            await self._view.annotate_node(patch)
            self._metrics.node_writes.inc()
            logger.info("Wrote the Node's annotations", keys=sorted(patch), devices=len(devices))

    def _remove_libraries(self) -> list[str]:
        entries = self._checkpoint.read()
        in_use = cdi_files.host_paths(self._cdi_root).union(*(entry.host_paths for entry in entries))
        return library.remove_unused(self._vgpu, __version__, in_use)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)


async def _repeat(step: Callable[[], Awaitable[None]], event: asyncio.Event, complaint: str) -> None:
    """Do *step* now, whenever *event* is set and every 30 s; log *complaint* with an error, and try again."""
    while True:
        try:
            await step()
        except (KubeError, HostFileError) as error:
            logger.warning(complaint, error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            continue
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(RECONCILE_SECONDS):
                await event.wait()
