"""
Serve the devices that the driver shows, until a change requires a new session.

A session ends when the kubelet restarts, the driver shows other devices, the Node reports another runtime, or a setting
changes that a running session cannot adopt. The next session starts from nothing: what must last is in the API, in the
kubelet's checkpoint and in the CDI directory.
Neighbours: `plugin` starts sessions, `calls` answers the kubelet, `kubelet_loop` and `node_loop` keep the kubelet and
the Node up to date.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, library
from hami_device_plugin.adapters.checkpoint import FILE_NAME, check_form, held_replicas
from hami_device_plugin.adapters.files import host_files_of
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.kubelet import Handlers, PluginServer, PodResources
from hami_device_plugin.adapters.nvml.devices import find_devices
from hami_device_plugin.adapters.nvml.events import UnhealthyDevices, watch
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.inventory import FoundDevice, inventory, is_instance, with_health
from hami_device_plugin.decide.mig.offer import MODE as MIG
from hami_device_plugin.decide.mig.offer import with_offers
from hami_device_plugin.decide.mig.static import MigDevice
from hami_device_plugin.decide.mode import AUTO, IDENTITY, LOCK, Mode, choose, versions
from hami_device_plugin.decide.replicas.ids import Replica, replicas
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.calls import Calls, grant_policy
from hami_device_plugin.serve.driver_part import DriverPart
from hami_device_plugin.serve.kubelet_loop import KubeletLoop
from hami_device_plugin.serve.link_loop import LinkLoop
from hami_device_plugin.serve.mig import Instances, MigInstances
from hami_device_plugin.serve.mig_session import mig_instances
from hami_device_plugin.serve.mig_static import InstanceResource, Offered, granted_instances, offered_devices
from hami_device_plugin.serve.node_loop import NodeLoop
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.runtime.kube import Kube
from hamicommon.runtime.nvml import Nvml, NvmlError
from hamicommon.vendors import nvidia

RESCAN_SECONDS = 30.0
POLL_SECONDS = 0.5
PROBE_SECONDS = 30.0
"""How long a starting kubelet may take to answer before the session falls back to the lock."""

logger = structlog.get_logger()


class SessionError(HamiError):
    """A session cannot start."""


class Session:
    """One session; `run` runs it."""

    def __init__(
        self, config: Config, kube: Kube, nvml: Nvml, metrics: Metrics, see_node: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """
        Prepare a session with *config*; it opens *nvml*, and closes it at its end.

        *see_node* gets the Node at each change.
        """
        self._nvml = nvml
        self._config = config
        self._metrics = metrics
        self._vendor = nvidia.vendor(config.device_config[nvidia.SECTION])
        self._view = NodeKube(kube, config.node_name, config.resource, self._vendor, see_node)
        self._resources = PodResources(Path(config.pod_resources_socket), config.resource)
        self._found: Sequence[FoundDevice] = ()
        self._devices: tuple[Device, ...] = ()
        self._unhealthy: frozenset[str] = frozenset()
        self._links = LinkLoop(nvml, self._view, self._to_rate)
        self._by_resource: tuple[tuple[str, tuple[MigDevice, ...]], ...] = ()
        """The MIG instances under resources of their own."""
        self._mig: MigInstances | None = None
        """Set in mode `mig`."""
        self._driver_part = DriverPart(config, self._view, metrics)
        self._calls: Calls
        self._node_loop: NodeLoop
        self._kubelet_loop: KubeletLoop
        self._server: PluginServer | None = None
        """Set when the kubelet can call; the three above are set before."""
        self._decided_for: tuple[str, ...] = ()
        """Versions of the runtime and the kubelet when the mode was chosen."""
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def not_ready(self) -> str | None:
        """Return why the kubelet cannot hand out devices; None if it can."""
        if self._server is None:
            return "the device plugin is starting"
        return self._kubelet_loop.problem() if self._config.kubelet_socket else None

    def status(self) -> str:
        """Return how devices reach containers."""
        return self._driver_part.status()

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
        devices = with_health(self._inventory(self._found, config), self._unhealthy)
        if self._server is None or config.session_settings != self._config.session_settings or not devices:
            return False
        try:
            self._calls.adopt(config, self._found, devices)
        except HamiError:
            return False
        self._node_loop.adopt(config)
        self._config = config
        self._offer(devices)
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
            await self._nvml.open(self._config.driver_root_here)
            offered = await self._find()
            self._found, self._by_resource = offered.found, offered.by_resource
            found = offered.found
            if self._config.sharing.mode == MIG:
                self._mig = stack.enter_context(mig_instances(self._config, self._nvml, self._view, self._vendor))
            elif not self._inventory(found, self._config) and not offered.by_resource:
                raise SessionError(f"no device to offer: the driver shows {len(found)}, all filtered or without memory")
            await asyncio.to_thread(self._install)
            try:
                return await self._serve()
            except BaseExceptionGroup as group:
                expected, bugs = group.split(HamiError)
                if expected is None or bugs is not None:
                    raise
                raise SessionError("; ".join(str(error) for error in expected.exceptions)) from group

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

    async def _serve(self) -> str:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._view.run())]
            if self._mig is not None:
                await self._prepare_mig(self._mig)
                tasks.append(group.create_task(self._mig.keep(lambda: self.end("mig"))))
            self._devices = self._inventory(self._found, self._config)
            self._count_devices()
            mode = await self._choose_mode()
            await self._driver_part.prepare(mode, self._uuids())
            self._prepare(mode)
            self._server = server = await self._start_server()
            try:
                tasks += [
                    group.create_task(self._node_loop.reconcile(lambda: self._devices)),
                    group.create_task(self._node_loop.keep_library()),
                    group.create_task(self._node_loop.keep_directories()),
                    group.create_task(self._rescan()),
                    group.create_task(self._watch_health()),
                    group.create_task(self._links.run()),
                    group.create_task(self._driver_part.keep(self._uuids, self.end)),
                    group.create_task(self._driver_part.check()),
                ]
                for resource in self._instance_resources(mode):
                    tasks.append(group.create_task(self._serve_instances(resource)))
                if self._config.kubelet_socket:
                    tasks.append(group.create_task(self._stay_registered()))
                cause = await self._end
            except asyncio.CancelledError:
                await server.stop()
                await self._node_loop.withdraw()
                raise
            await server.stop()
            for task in tasks:
                task.cancel()
        return cause

    async def _find(self) -> Offered:
        """Return what the Node offers by its MIG strategy."""
        return await offered_devices(self._nvml, self._config, await find_devices(self._nvml))

    async def _prepare_mig(self, mig: MigInstances) -> None:
        """Make the GPUs ready; which of them are idle is known once all Pods are."""
        await self._view.pod_reflector.synced.wait()
        await mig.prepare()
        if not self._inventory(self._found, self._config):
            reasons = "; ".join(mig.problems.values()) or f"the driver shows {len(self._found)}, all filtered"
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
        self._decided_for = versions(node)
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
            try:
                await self._resources.listed()
                await asyncio.to_thread(check_form, self._config.plugin_directory / FILE_NAME)
                await asyncio.to_thread(Path(self._config.cdi_root).mkdir, parents=True, exist_ok=True)
            except (HamiError, OSError) as error:
                if time.monotonic() > deadline:
                    return str(error)
                await asyncio.sleep(POLL_SECONDS)
            else:
                return None

    def _prepare(self, mode: Mode) -> None:
        """Create the parts that answer the kubelet and update the Node."""
        self._calls = Calls(
            self._config,
            vendor=self._vendor,
            view=self._view,
            resources=self._resources,
            links=self._links,
            mode=mode,
            driver_part=self._driver_part,
            metrics=self._metrics,
            instances=self._instances(),
        )
        self._calls.adopt(self._config, self._found, self._devices)
        self._node_loop = NodeLoop(
            self._config,
            vendor=self._vendor,
            view=self._view,
            calls=self._calls,
            links=self._links,
            mode=mode,
            strategy=self._driver_part.strategy,
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
                policy=grant_policy(self._config, self._found, self._driver_part.strategy),
                driver=self._driver_part.part,
                is_identity=mode.is_identity,
                metrics=self._metrics,
            )
            for resource, devices in self._by_resource
        ]

    async def _serve_instances(self, resource: InstanceResource) -> None:
        """Serve a resource of `mixed`; end the session once the kubelet has restarted."""
        await resource.run(lambda: self._view.node)
        self.end("kubelet")

    async def _start_server(self) -> PluginServer:
        calls = self._calls
        server = PluginServer(
            self._config.plugin_directory / self._config.endpoint,
            Handlers(allocate=calls.allocate, preferred=calls.preferred, pre_start=calls.pre_start),
            self._replicas(),
        )
        self._kubelet_loop = KubeletLoop(self._config.kubelet_socket, self._config.resource, server, self._metrics)
        await server.start()
        return server

    async def _stay_registered(self) -> None:
        """Register as often as needed; end the session once the kubelet has restarted."""
        await self._kubelet_loop.run(lambda: self._view.node, lambda: len(self._devices) - len(self._unhealthy))
        self.end("kubelet")

    async def _rescan(self) -> None:
        """End the session when the driver shows other devices, or the Node other versions."""
        while True:
            await asyncio.sleep(RESCAN_SECONDS)
            if self._config.allocation == AUTO and versions(self._view.node) not in ((), self._decided_for):
                self.end("node")
            try:
                offered = await self._find()
                now = self._inventory(offered.found, self._config)
            except NvmlError as error:
                logger.warning("The driver did not answer, its devices count as they were", error=str(error))
                continue
            if with_health(now, self._unhealthy) != self._devices or offered.by_resource != self._by_resource:
                self.end("devices")
            elif self._server is not None:
                # A replica that no Pod holds any more is spelled as configured.
                self._server.offer(self._replicas())

    async def _watch_health(self) -> None:
        if not self._config.health.is_on:
            logger.info("Health is not watched: DP_DISABLE_HEALTHCHECKS switches it off")
            return
        uuids = [device.id for device in self._devices if not is_instance(device.id)]
        try:
            await watch(self._nvml, uuids, self._config.health, self._mark_unhealthy)
        except NvmlError as error:
            self._mark_unhealthy(UnhealthyDevices(frozenset(), str(error)))

    def _mark_unhealthy(self, event: UnhealthyDevices) -> None:
        """
        Offer the devices of *event* as unhealthy; only a new session makes them healthy again.
        """
        uuids = event.uuids or frozenset(device.id for device in self._devices)
        if uuids <= self._unhealthy:
            return
        logger.error("Devices are unhealthy", devices=sorted(uuids), because=event.reason)
        self._unhealthy |= uuids
        self._offer(with_health(self._devices, self._unhealthy))

    def _offer(self, devices: tuple[Device, ...]) -> None:
        """Offer *devices* to the kubelet and in the Node's annotation, instead of those before."""
        self._devices = devices
        self._count_devices()
        self._view.changed.set()
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

    def _count_devices(self) -> None:
        healthy = sum(device.healthy for device in self._devices)
        self._metrics.devices.labels("healthy").set(healthy)
        self._metrics.devices.labels("unhealthy").set(len(self._devices) - healthy)
