"""
Serve the devices that the driver shows, until a change requires a new session.

A session ends when the kubelet restarts, the driver shows other devices or was away, the Node reports another runtime,
or a setting changes that a running session cannot adopt. The next session starts from nothing: what must last is in the
API, in the kubelet's checkpoint and in the CDI directory.
Neighbours: `plugin` starts sessions, `driver` waits for the driver, `card_loop` finds the devices and their health,
`calls` answers the kubelet, `kubelet_loop` and `node_loop` keep the kubelet and the Node up to date.
"""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, library
from hami_device_plugin.adapters.checkpoint import FILE_NAME, check_form, held_replicas
from hami_device_plugin.adapters.files import host_files_of, label_for_containers
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.kubelet import Handlers, PluginServer, PodResources
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.announcement import announcement
from hami_device_plugin.decide.enforcement import HOLDERS, Enforcement, EnforcementError
from hami_device_plugin.decide.inventory import FoundDevice, inventory, is_instance
from hami_device_plugin.decide.mig.offer import MODE as MIG
from hami_device_plugin.decide.mig.offer import with_offers
from hami_device_plugin.decide.mode import AUTO, IDENTITY, LOCK, Mode, choose, versions
from hami_device_plugin.decide.replicas.ids import Replica, replicas
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.hardware.card_loop import CardLoop, Conditions
from hami_device_plugin.serve.hardware.driver import Driver
from hami_device_plugin.serve.hardware.driver_part import DriverPart
from hami_device_plugin.serve.hardware.enforcement import EnforcementSearch
from hami_device_plugin.serve.hardware.link_loop import LinkLoop
from hami_device_plugin.serve.kubelet_loop import KubeletLoop
from hami_device_plugin.serve.mig.instances import Instances, MigInstances
from hami_device_plugin.serve.mig.locate import InstanceLocator
from hami_device_plugin.serve.mig.static import InstanceResource, granted_instances
from hami_device_plugin.serve.mig.wiring import mig_instances
from hami_device_plugin.serve.node_loop import NodeLoop
from hami_device_plugin.serve.recorded import RecordedDevices
from hami_device_plugin.serve.starts.ahead import Ahead
from hami_device_plugin.serve.starts.calls import Calls, grant_policy
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.host.nvml import Nvml, NvmlError
from hamicommon.vendors import nvidia

LOOK_SECONDS = 30.0
POLL_SECONDS = 0.5
PROBE_SECONDS = 30.0
"""How long a starting kubelet may take to answer before the session falls back to the lock."""

logger = structlog.get_logger()


class SessionError(HamiError):
    """A session cannot start."""


class Session:
    """One session; `run` runs it."""

    def __init__(
        self,
        config: Config,
        kube: Kube,
        nvml: Nvml,
        conditions: Conditions,
        metrics: Metrics,
        *,
        see_node: Callable[[Mapping[str, Any]], None],
        is_driver_required: bool,
    ) -> None:
        """
        Prepare a session with *config*; *see_node* gets the Node at each change.

        It opens *nvml*, and closes it at its end. *conditions* of devices outlive it. Unless *is_driver_required*, it
        waits for a driver that is missing.
        """
        self._config = config
        self._nvml = nvml
        self._is_driver_required = is_driver_required
        self._metrics = metrics
        self._vendor = nvidia.vendor(config.device_config[nvidia.SECTION])
        self._view = NodeKube(kube, config.node_name, config.resource, self._vendor, see_node)
        self._resources = PodResources(Path(config.pod_resources_socket), config.resource)
        self._driver = Driver(nvml, self._view, metrics, config.driver.here)
        self._cards = CardLoop(
            config,
            nvml=nvml,
            driver=self._driver,
            view=self._view,
            metrics=metrics,
            register_key=self._vendor.register_key,
            conditions=conditions,
            inventory=self._inventory,
            changed=self._offer,
        )
        self._devices: tuple[Device, ...] = ()
        self._links = LinkLoop(nvml, self._view, self._to_rate)
        self._mig: MigInstances | None = None
        """Set in mode `mig`."""
        self._locator = InstanceLocator(MigNvml(nvml))
        self._driver_part = DriverPart(config, self._view, metrics, self._locator.capabilities)
        self._enforcement: Enforcement | None = None
        """Who limits memory; None until that is known."""
        self._calls: Calls
        self._node_loop: NodeLoop
        self._kubelet_loop: KubeletLoop
        self._server: PluginServer | None = None
        """Set when the kubelet can call; the three above are set before."""
        self._decided_for: tuple[str, ...] = ()
        """Versions of the runtime and the kubelet when the mode was chosen."""
        self._lacked: str | None = None
        """What identity allocation lacked when the mode was chosen."""
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def is_serving(self) -> bool:
        """Whether the kubelet can call."""
        return self._server is not None

    def not_ready(self) -> str | None:
        """Return why the kubelet cannot hand out devices; None if it can."""
        if self._driver.problem is not None:
            return self._driver.problem
        if self._server is None:
            return "the device plugin is starting"
        return self._kubelet_loop.problem() if self._config.kubelet_socket else None

    def status(self) -> str:
        """Return how devices reach containers, and who limits their memory."""
        held = "" if self._enforcement is None else f"memory is limited by {self._enforcement}"
        return "\n".join(filter(None, (self._driver_part.status(), held)))

    def end(self, cause: str) -> None:
        """End the session for *cause*; the first cause counts."""
        if not self._end.done():
            self._end.set_result(cause)

    def adopt(self, config: Config) -> bool:
        """
        Continue with *config* and return True; False if that needs a new session.

        A new session is needed before the kubelet can call, if `session_settings` differ, and if no device would be
        left. The kubelet notices nothing but other replicas.
        """
        devices = self._cards.devices(config)
        if self._server is None or config.session_settings != self._config.session_settings or not devices:
            return False
        try:
            self._calls.adopt(config, self._cards.offered.found, devices)
        except HamiError:
            return False
        self._node_loop.adopt(config)
        self._cards.adopt(config)
        self._config = config
        self._offer()
        return True

    async def run(self) -> str:
        """
        Serve until a new session is needed, and return the cause.

        Raises:
            NvmlError: the driver cannot be used.
            HamiError: the session cannot start for another reason.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._resources.close)
            stack.push_async_callback(self._close_nvml)
            try:
                async with asyncio.TaskGroup() as group:
                    serving = group.create_task(self._serve())
                    try:
                        cause = await self._end
                    except asyncio.CancelledError:
                        await self._stop_server()
                        serving.cancel()
                        await asyncio.wait({serving})
                        if self._server is not None:
                            await self._node_loop.withdraw()
                        raise
                    await self._stop_server()
                    serving.cancel()
            except BaseExceptionGroup as group:
                errors = list(_leaves(group))
                expected = [error for error in errors if isinstance(error, HamiError)]
                if len(expected) < len(errors):
                    raise
                if len(expected) == 1:
                    raise expected[0] from group
                raise SessionError("; ".join(map(str, expected))) from group
            return cause

    async def _close_nvml(self) -> None:
        with suppress(NvmlError):
            await self._nvml.close()

    def _install(self) -> None:
        vgpu = self._config.vgpu_directory
        if self._config.library:
            library.install(Path(self._config.library), vgpu, __version__)
        library.write_preload(vgpu)
        with host_files_of("--cdi-root cannot be used"):
            cdi_files.remove_unfinished(Path(self._config.cdi_root))
        for path in (library.host_library(vgpu, __version__).host_path, str(vgpu / library.PRELOAD_NAME)):
            problem = label_for_containers(Path(path))
            if problem is not None:
                logger.warning("SELinux may keep containers from a file", error=problem)

    async def _serve(self) -> None:
        """
        Serve until cancelled.

        Raises:
            NvmlError: the driver cannot be used, and must be there at the start.
            HamiError: the session cannot start for another reason.
        """
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            group.create_task(self._view.run())
            await self._view.wait_node(bool)
            await self._open_driver()
            await self._cards.find()
            if self._config.sharing.mode == MIG:
                self._mig = stack.enter_context(
                    mig_instances(self._config, self._nvml, self._view, self._vendor, self._metrics)
                )
                await self._prepare_mig(self._mig)
                group.create_task(self._mig.keep(lambda: self.end("mig")))
            self._devices = self._first_devices()
            self._count_devices()
            await asyncio.to_thread(self._install)
            mode = await self._choose_mode()
            await self._driver_part.prepare(mode, self._uuids())
            enforcement = await self._choose_enforcement(mode)
            self._prepare(mode, enforcement)
            await self._cards.look()
            self._server = await self._start_server()
            group.create_task(self._node_loop.reconcile(lambda: self._devices, self._cards.annotations))
            if mode.is_identity and self._mig is None:
                ahead = Ahead(self._config, self._vendor, self._view, gets_library=self._calls.gets_library)
                group.create_task(ahead.run())
            group.create_task(self._node_loop.keep_library())
            group.create_task(self._node_loop.keep_directories())
            group.create_task(self._watch_node())
            if not (enforcement.is_final and enforcement.is_compute_final):
                group.create_task(self._await_other_enforcement(mode, enforcement))
            group.create_task(self._links.run())
            group.create_task(self._driver_part.keep(self._uuids, self.end))
            group.create_task(self._driver_part.check())
            for resource in self._instance_resources(mode):
                group.create_task(self._serve_instances(resource))
            if self._config.kubelet_socket:
                group.create_task(self._stay_registered())
            self.end(await self._cards.run())

    async def _open_driver(self) -> None:
        """Open the driver; while it is silent, serve the devices that the Node has recorded."""
        recorded = RecordedDevices(self._config, self._driver, self._vendor, self._view, self._metrics)
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(recorded.serve())
            await self._driver.open(is_required=self._is_driver_required)
            serving.cancel()

    def _first_devices(self) -> tuple[Device, ...]:
        """Return the devices to offer. Raises: SessionError: there are none."""
        devices = self._cards.devices(self._config)
        if not devices and not self._cards.offered.by_resource:
            shown = len(self._cards.offered.found) + len(self._cards.unread)
            raise SessionError(
                f"no device to offer: the driver shows {shown}, all filtered, unreadable or without memory"
            )
        return devices

    async def _stop_server(self) -> None:
        if self._server is not None:
            await self._server.stop()

    async def _prepare_mig(self, mig: MigInstances) -> None:
        """Make the GPUs ready; which of them are idle is known once all Pods are."""
        await self._view.pod_reflector.synced.wait()
        await mig.prepare()
        found = self._cards.offered.found
        if not self._inventory(found, self._config):
            reasons = "; ".join(mig.problems.values()) or f"the driver shows {len(found)}, all filtered"
            await self._view.send_reports()
            raise SessionError(f"no device to offer in mode mig: {reasons}")

    def _inventory(self, found: Sequence[FoundDevice], config: Config) -> tuple[Device, ...]:
        """Return what *found* offers by *config*; in mode `mig` the GPUs that are ready, with their profiles."""
        devices = inventory(found, config.sharing)
        return devices if self._mig is None else with_offers(devices, self._mig.offers)

    async def _choose_mode(self) -> Mode:
        node, problem = self._view.node, None
        if self._config.allocation == AUTO:
            node = await self._view.wait_node(lambda node: bool(versions(node)))
            problem = await self._identity_problem()
        mode = choose(self._config.allocation, node, problem)
        self._decided_for, self._lacked = versions(node), problem
        logger.info("Allocations find their Pod", by=mode.name, because=mode.reason)
        for name in (IDENTITY, LOCK):
            self._metrics.mode.labels(name).set(mode.name == name)
        return mode

    async def _identity_problem(self) -> str | None:
        """
        Return why identity allocation cannot work here, as far as a probe shows; None if it can.

        A kubelet that is starting gets time to answer, so that the mode does not depend on which process started first.
        """
        deadline = time.monotonic() + PROBE_SECONDS
        while True:
            problem = await self._probe()
            if problem is None or time.monotonic() > deadline:
                return problem
            await asyncio.sleep(POLL_SECONDS)

    async def _probe(self) -> str | None:
        """Return what identity allocation lacks at this moment; None if it has all."""
        try:
            await self._resources.listed()
            await asyncio.to_thread(check_form, self._config.plugin_directory / FILE_NAME)
            await asyncio.to_thread(Path(self._config.cdi_root).mkdir, parents=True, exist_ok=True)
        except (HamiError, OSError) as error:
            return str(error)
        return None

    async def _choose_enforcement(self, mode: Mode) -> Enforcement:
        """
        Return who limits containers.

        Raises:
            EnforcementError: it must be the driver, which cannot. The scheduler is told that no device can be used.
        """
        try:
            found = await self._enforcement_search(mode).find()
        except EnforcementError as error:
            await self._withdraw_devices(mode, Enforcement("none", str(error)))
            raise
        compute = {"compute": found.compute} if found.compute else {}
        logger.info("Memory is limited", by=found.by, because=found.reason, **compute)
        for name in HOLDERS:
            self._metrics.enforcement.labels(name).set(name == found.by)
        if found.compute:
            self._metrics.compute_enforcement.labels("mps").set(found.mps is not None)
            self._metrics.compute_enforcement.labels("library").set(found.mps is None)
        self._enforcement = found
        return found

    async def _await_other_enforcement(self, mode: Mode, found: Enforcement) -> None:
        """End the session once somebody else limits containers than was *found*."""
        await self._enforcement_search(mode).wait_change(found)
        self.end("enforcement")

    def _enforcement_search(self, mode: Mode) -> EnforcementSearch:
        return EnforcementSearch(self._config, self._nvml, self._uuids(), self._driver_part.strategy, mode.is_identity)

    async def _withdraw_devices(self, mode: Mode, enforcement: Enforcement) -> None:
        """Say in the Node's annotations that all its devices are unhealthy, and why nothing is offered."""
        patch = announcement(
            [replace(device, healthy=False) for device in self._devices],
            self._vendor,
            version=self._config.wire_version,
            is_identity=mode.is_identity,
            device_list=str(self._driver_part.strategy),
            enforcement=str(enforcement),
            carried=self._view.annotations,
            now=datetime.now(UTC),
        )
        if patch:
            await self._view.annotate_node(patch)
            self._view.report("MemoryNotEnforced", f"Nothing is offered: {enforcement.reason}", is_warning=True)
            await self._view.send_reports()

    def _prepare(self, mode: Mode, enforcement: Enforcement) -> None:
        """Create the parts that answer the kubelet and update the Node."""
        self._calls = Calls(
            self._config,
            vendor=self._vendor,
            view=self._view,
            resources=self._resources,
            links=self._links,
            mode=mode,
            enforcement=enforcement,
            driver_part=self._driver_part,
            metrics=self._metrics,
            locator=self._locator,
            instances=self._instances(),
        )
        self._calls.adopt(self._config, self._cards.offered.found, self._devices)
        self._node_loop = NodeLoop(
            self._config,
            vendor=self._vendor,
            view=self._view,
            calls=self._calls,
            links=self._links,
            mode=mode,
            strategy=self._driver_part.strategy,
            enforcement=enforcement,
            metrics=self._metrics,
        )

    def _instances(self) -> Instances | None:
        """Return what a container's shares become if they are MIG instances."""
        if self._mig is not None:
            return self._mig.realized
        return granted_instances if any(is_instance(device.id) for device in self._devices) else None

    def _instance_resources(self, mode: Mode) -> list[InstanceResource]:
        """Return the resources of the strategy `mixed`."""
        return [
            InstanceResource(
                resource,
                devices,
                self._config,
                nvml=self._nvml,
                policy=grant_policy(self._config, self._cards.offered.found, self._driver_part.strategy),
                locator=self._locator,
                driver=self._driver_part.part,
                is_identity=mode.is_identity,
                metrics=self._metrics,
            )
            for resource, devices in self._cards.offered.by_resource
        ]

    async def _serve_instances(self, resource: InstanceResource) -> None:
        """Serve a resource of `mixed`; end the session once the kubelet has restarted."""
        await resource.run(lambda: self._view.node)
        self.end("kubelet")

    async def _start_server(self) -> PluginServer:
        calls = self._calls
        server = PluginServer(
            self._config.socket(self._config.resource),
            Handlers(allocate=calls.allocate, preferred=calls.preferred, pre_start=calls.pre_start),
            self._replicas(),
        )
        self._kubelet_loop = KubeletLoop(self._config.kubelet_socket, self._config.resource, server, self._metrics)
        await server.start()
        return server

    async def _stay_registered(self) -> None:
        """Register as often as needed; end the session once the kubelet has restarted."""
        await self._kubelet_loop.run(lambda: self._view.node, self._count_healthy)
        self.end("kubelet")

    async def _watch_node(self) -> None:
        """End the session when the mode may be another one; spell replicas again that no Pod holds any more."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._config.allocation == AUTO and await self._is_mode_open():
                self.end("node")
            if self._server is not None:
                self._server.offer(self._replicas())

    async def _is_mode_open(self) -> bool:
        """Return whether the Node reports other versions, or has what identity allocation lacked."""
        if versions(self._view.node) not in ((), self._decided_for):
            return True
        return self._lacked is not None and await self._probe() is None

    def _offer(self) -> None:
        """Offer the devices as they are now to the kubelet and in the Node's annotation."""
        self._devices = self._cards.devices(self._config)
        self._count_devices()
        self._view.to_announce.set()
        if self._server is not None:
            self._server.offer(self._replicas())

    def _replicas(self) -> tuple[Replica, ...]:
        """Return the kubelet's list of the devices offered."""
        held = held_replicas(self._config.plugin_directory / FILE_NAME, self._config.resource)
        return replicas(self._devices, self._config.sharing, held)

    def _to_rate(self) -> list[str]:
        """Return the UUIDs of the devices whose links matter: the healthy ones, if the settings use the scores."""
        return [device.id for device in self._devices if device.healthy] if self._config.rates_links else []

    def _uuids(self) -> list[str]:
        """Return the UUIDs of the devices offered."""
        return [device.id for device in self._devices]

    def _count_healthy(self) -> int:
        return sum(device.healthy for device in self._devices)

    def _count_devices(self) -> None:
        healthy = self._count_healthy()
        self._metrics.devices.labels("healthy").set(healthy)
        self._metrics.devices.labels("unhealthy").set(len(self._devices) - healthy)


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    """Yield the errors in *group* and its groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error
