"""
Keep the driver's part of the CDI specs, and say which way devices reach containers on this Node.

Tries at the start of a session what native CDI needs, and describes the driver again whenever its files, its device
files or the offered devices change. Checks for each container that the runtime applied its edits. Nothing here depends
on an earlier session.
Neighbours: `generator` describes the driver, `strategy` chooses the way, `identity` writes the specs, `service` starts
the loops.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, library
from hami_device_plugin.adapters.generator import Generator, GeneratorError, GeneratorHangError, roots
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.nvml.mig import read_major
from hami_device_plugin.adapters.regions import was_used
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocate.allocation import CONTROL_NODES
from hami_device_plugin.decide.allocate.cdi.driver import ALL_DEVICES, DriverSpec, with_device_files
from hami_device_plugin.decide.inventory import is_instance
from hami_device_plugin.decide.probe.mode import Mode
from hami_device_plugin.decide.probe.strategy import LIST_STRATEGIES, Strategy, choose_strategy, may_be_native
from hami_device_plugin.metrics import Metrics
from hamicommon.errors import HamiError
from hamicommon.pod.reading import Pod
from hamicommon.runtime.host.nvml import library_below
from hamicommon.wire.driver_pause import pause_reason

REFRESH_SECONDS = 30.0
RETRY_SECONDS = 300.0
"""How long a Node stays without native CDI before what it needs is tried again."""
CHECK_SECONDS = 2.0
STATUS_SECONDS = 10.0
"""By then the Pod's status is that of the container's new run."""
FALLBACK_EVENT = "NativeCDINotUsed"
MISSING_EVENT = "CDIEditsMissing"

Fingerprint = tuple[object, ...]
Capabilities = Callable[[str], Awaitable[Mapping[str, int]]]
"""Returns the minor number of each device file of a MIG instance besides the GPU's, by path."""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Expected:
    """A container whose edits the runtime is about to apply."""

    pod_uid: str
    name: str
    """The container's name."""
    shown: str
    """Pod and container, for messages."""
    mark: Path
    """The container's region, which the runtime marks when it applies the edits."""
    prepared_at: datetime


class DriverCdi:
    """The driver's part on this Node, for one session."""

    def __init__(self, config: Config, view: NodeKube, metrics: Metrics, capabilities: Capabilities) -> None:
        """Work by *config*; `prepare` chooses the strategy. *capabilities* are those of MIG instances."""
        self._config = config
        self._capabilities = capabilities
        self._view = view
        self._metrics = metrics
        driver, self._device_root = roots(config.driver_root, config.driver_root_here, config.dev_root)
        self.hook = str(library.versioned(config.vgpu_directory, __version__, library.HOOK_NAME))
        self._generator = Generator(config.cdi_generator, self.hook, driver, self._device_root)
        self.strategy = Strategy((), "the device plugin is starting")
        self._spec: DriverSpec | None = None
        self._described: Fingerprint = ()
        """The files of the driver and the devices that the spec describes."""
        self._is_retried = False
        """Whether native CDI is tried again."""
        self._one_at_a_time = asyncio.Lock()
        self._expected: dict[Path, Expected] = {}
        self._last = ""
        """Whether the last container got its edits, as a sentence; empty if none was prepared."""

    async def prepare(self, mode: Mode, uuids: Sequence[str]) -> Strategy:
        """
        Choose the strategy for *mode*, and describe what the devices *uuids* need.

        Raises:
            StrategyError: the configured strategy is native CDI, which does not work here.
        """
        problem = None
        if may_be_native(self._config.list_strategies, mode):
            problem = await self._problem(uuids)
        self.strategy = choose_strategy(self._config.list_strategies, mode, problem)
        logger.info("Devices reach containers", by=self.strategy.names, because=self.strategy.reason)
        for name in LIST_STRATEGIES:
            self._metrics.strategies.labels(name).set(name in self.strategy.names)
        self._is_retried = problem is not None and bool(self._config.cdi_generator)
        return self.strategy

    def status(self) -> str:
        """Return the way and the last container's result, a sentence each."""
        return "\n".join(filter(None, (f"devices reach containers by {self.strategy}", self._last)))

    async def part(self, uuids: Sequence[str]) -> DriverSpec | None:
        """
        Return the driver's part for a container with the devices *uuids*; None if NVIDIA's runtime adds it.

        A device that is not described yet, such as a MIG instance that was just made, is described now.

        Raises:
            GeneratorError: it cannot be described.
            SpecError: the generator left it out.
        """
        if not self.strategy.is_native:
            return None
        async with self._one_at_a_time:
            spec = self._spec or DriverSpec()
            missing = [uuid for uuid in uuids if uuid not in spec.devices]
            if missing:
                spec += await self._generated(missing)
                self._spec = spec
        return replace(spec, common=spec.selected(uuids), devices={})

    def expect(self, pod: Pod, container: str, mark: Path) -> None:
        """Check that the runtime marks the region *mark* when *container* starts, which was prepared just now."""
        shown = f"Pod {pod}, container {container}"
        self._expected[mark] = Expected(pod.uid, container, shown, mark, datetime.now(UTC).replace(microsecond=0))

    async def keep(self, uuids: Callable[[], Sequence[str]], end: Callable[[str], None]) -> None:
        """
        Keep the description of the devices *uuids* up to date, until cancelled.

        *end* ends the session, if native CDI works now and did not at its start.
        """
        next_try = time.monotonic() + RETRY_SECONDS
        if self._is_retried:
            self._view.report(FALLBACK_EVENT, f"Devices reach containers by {self.strategy}", is_warning=True)
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            if pause_reason(self._view.node) is not None:
                # The generator would open the driver.
                continue
            if self.strategy.is_native:
                await self._refresh(uuids())
            elif self._is_retried and time.monotonic() > next_try:
                next_try = time.monotonic() + RETRY_SECONDS
                if await self._problem(uuids()) is None:
                    end("driver")

    async def check(self) -> None:
        """Find out for each container whether the runtime applied its edits, until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for expected in list(self._expected.values()):
                await self._check(expected)

    async def _check(self, expected: Expected) -> None:
        pod = self._view.pods.get(expected.pod_uid)
        is_applied = await asyncio.to_thread(was_used, expected.mark)
        if not is_applied and pod is not None and not _has_started(pod, expected):
            return
        del self._expected[expected.mark]
        if is_applied:
            self._last = f"{expected.shown}: the container runtime applied its CDI edits"
            self._metrics.edits.labels("applied").inc()
        elif pod is not None:
            self._last = f"{expected.shown}: started without its CDI edits; is CDI enabled in the container runtime?"
            self._metrics.edits.labels("missing").inc()
            logger.error("A container started without its CDI edits", container=expected.shown)
            self._view.report(MISSING_EVENT, self._last, is_warning=True)

    async def _problem(self, uuids: Sequence[str]) -> str | None:
        """Return why native CDI does not work here, after trying each step; None if it does."""
        try:
            await asyncio.to_thread(self._install)
            await self._describe(uuids)
        except HamiError as error:
            return str(error)
        return None

    def _install(self) -> None:
        config = self._config
        if not config.cdi_generator:
            raise GeneratorError("--cdi-generator is empty")
        if library_below(Path(config.driver_root_here)) is None:
            raise GeneratorError(
                f"--driver-root-ctr-path {config.driver_root_here} has no driver: mount the host's "
                f"--nvidia-driver-root {config.driver_root} there"
            )
        library.install(Path(config.cdi_hook), config.vgpu_directory, __version__, library.HOOK_NAME)
        cdi_files.try_directory(Path(config.cdi_root))

    async def _describe(self, uuids: Sequence[str]) -> None:
        """Describe the driver and the devices *uuids*."""
        seen = await asyncio.to_thread(self._fingerprint, uuids)
        spec = await self._described_devices(uuids)
        for mode, names in self._features():
            try:
                spec += (await self._generator.describe(names, mode)).for_all()
            except GeneratorError as error:
                logger.warning("Containers do not get a feature of the driver", feature=mode, because=str(error))
        self._spec, self._described = spec, seen
        logger.info("The driver is described", devices=sorted(spec.devices), files=len(spec.common.mounts))
        if "/dev/nvidia-uvm" not in spec.common.device_nodes:
            logger.warning(
                "CUDA will not work: the driver has no /dev/nvidia-uvm; run nvidia-modprobe -u -c=0 on the host",
                below=self._device_root.host,
            )

    def _features(self) -> Iterator[tuple[str, Sequence[str]]]:
        """Yield the generator's mode and its devices for each feature that every container gets."""
        config = self._config
        switches = {"gdrcopy": config.gdrcopy, "gds": config.gds, "mofed": config.mofed}
        yield from ((mode, (ALL_DEVICES,)) for mode, is_on in switches.items() if is_on)
        if config.imex_channels:
            yield "imex", [str(channel) for channel in config.imex_channels]

    async def _described_devices(self, uuids: Sequence[str]) -> DriverSpec:
        """Return the description of *uuids*; if they cannot be described together, of those that can be alone."""
        try:
            return await self._generated(uuids)
        except GeneratorHangError:
            raise
        except GeneratorError as error:
            if len(uuids) == 1:
                raise
            first = error
        spec = DriverSpec()
        for uuid in uuids:
            try:
                spec += await self._generated([uuid])
            except GeneratorError as error:
                logger.error(
                    "A device is not described, its containers will not start", device=uuid, because=str(error)
                )
        if not spec.devices:
            raise first
        return spec

    async def _generated(self, uuids: Sequence[str]) -> DriverSpec:
        """Return the generator's description of *uuids*, MIG instances with all of their device files."""
        spec = await self._generator.describe(uuids)
        instances = list(filter(is_instance, spec.devices))
        if not instances:
            return spec
        devices, major = dict(spec.devices), await asyncio.to_thread(read_major)
        for uuid in instances:
            try:
                devices[uuid] = with_device_files(devices[uuid], await self._capabilities(uuid), major)
            except HamiError as error:
                raise GeneratorError(f"MIG instance {uuid}: {error}") from error
        return replace(spec, devices=devices)

    async def _refresh(self, uuids: Sequence[str]) -> None:
        if await asyncio.to_thread(self._fingerprint, uuids) == self._described:
            return
        async with self._one_at_a_time:
            try:
                await self._describe(uuids)
            except GeneratorError as error:
                logger.warning("The driver is not described again, the last description holds", error=str(error))

    def _fingerprint(self, uuids: Iterable[str]) -> Fingerprint:
        """Return what changes with the driver's files, its device files and the devices."""
        root = self._device_root.here.rstrip("/")
        nodes = [*CONTROL_NODES, *(f"/dev/{name}" for name in _listed(f"{root}/dev") if name.startswith("nvidia"))]
        found = library_below(Path(self._config.driver_root_here))
        return (found, _identity(found), sorted(uuids), [(path, _identity(Path(f"{root}{path}"))) for path in nodes])


def _has_started(pod: Pod, expected: Expected) -> bool:
    """Return whether the container has started since it was prepared."""
    started_at = next((found.started_at for found in pod.containers if found.name == expected.name), None)
    is_reported = (datetime.now(UTC) - expected.prepared_at).total_seconds() > STATUS_SECONDS
    return is_reported and started_at is not None and started_at >= expected.prepared_at


def _listed(directory: str) -> list[str]:
    try:
        return sorted(path.name for path in Path(directory).iterdir())
    except OSError:
        return []


def _identity(path: Path | None) -> tuple[int, ...] | None:
    """Return numbers that differ between two files, or two device files, at *path*; None if there is none."""
    try:
        status = path.stat() if path is not None else None
    except OSError:
        return None
    return None if status is None else (status.st_ino, status.st_rdev, status.st_mtime_ns)
