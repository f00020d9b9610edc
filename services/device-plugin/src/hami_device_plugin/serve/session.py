"""
One life of the plugin: from asking the driver to the moment something outside changed so much that all begins anew.

Owns the actors of that life: the server the kubelet calls, its registration, device health. Settings may change in the
midst of it, but for those it stands on. Nothing is carried into the next life; what must last is in the API, the
kubelet's checkpoint and the CDI directory.
Neighbours: `main` starts lives, `calls` answers the kubelet, `node_loop` keeps the Node and the files right.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import cdi_files, library
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.kubelet import (
    Handlers,
    KubeletError,
    PluginServer,
    PodResources,
    is_served,
    register,
    socket_identity,
)
from hami_device_plugin.adapters.nvml import Nvml, NvmlError, Sickness
from hami_device_plugin.config import Config
from hami_device_plugin.decide.inventory import FoundDevice, inventory, replicas, with_health
from hami_device_plugin.decide.mode import AUTO, IDENTITY, LOCK, Mode, choose, versions
from hami_device_plugin.decide.registration import Standing, reason_to_register
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.calls import Calls
from hami_device_plugin.serve.node_loop import NodeLoop
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.runtime.kube import Kube
from hamicommon.vendors import nvidia

RESCAN_SECONDS = 30.0
POLL_SECONDS = 0.5
REGISTER_RETRY_SECONDS = 2.0
OBSTACLE_SECONDS = 30.0

logger = structlog.get_logger()


class SessionError(HamiError):
    """A life cannot begin."""


class Session:
    """One life; `run` lives it."""

    def __init__(self, config: Config, kube: Kube, metrics: Metrics) -> None:
        """Prepare a life with *config*."""
        self._config = config
        self._metrics = metrics
        self._vendor = nvidia.vendor(config.device_config.nvidia)
        self._view = NodeKube(kube, config.node_name, config.resource, self._vendor)
        self._resources = PodResources(Path(config.pod_resources_socket), config.resource)
        self._kubelet_socket = Path(config.kubelet_socket)
        self._found: Sequence[FoundDevice] = ()
        self._devices: tuple[Device, ...] = ()
        self._unhealthy: frozenset[str] = frozenset()
        self._calls: Calls
        self._node_loop: NodeLoop
        self._server: PluginServer | None = None
        """There once the kubelet can call; `_calls` and `_node_loop` are there before."""
        self._registered_at: float | None = None
        self._kubelet: int | None = None
        """Identity of the kubelet's socket when it last took the registration."""
        self._decided_for: tuple[str, ...] = ()
        """Versions of the runtime and the kubelet when the mode was chosen."""
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def not_ready(self) -> str | None:
        """Return why the kubelet cannot hand out devices through this life, None if it can."""
        if self._server is None:
            return "the device plugin is starting"
        if not self._config.kubelet_socket:
            return None
        if self._registered_at is None:
            return "not registered with the kubelet"
        return None if self._server.open_streams else "the kubelet does not listen for devices"

    def end(self, cause: str) -> None:
        """End this life for *cause*; the first cause counts."""
        if not self._end.done():
            self._end.set_result(cause)

    def adopt(self, config: Config) -> bool:
        """
        Go on by *config*, with the kubelet hearing of nothing but other replicas; return whether that can be.

        It cannot before the kubelet can call, nor with another footing, nor where no device would be left.
        """
        devices = with_health(inventory(self._found, config.sharing), self._unhealthy)
        if self._server is None or config.footing != self._config.footing or not devices:
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
        Live until something outside makes a new life necessary, and return what it was.

        Raises:
            NvmlError: the driver cannot be used.
            HamiError: the life cannot begin for another reason.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._resources.close)
            driver = await Nvml.open(self._config.driver_root_here)
            stack.push_async_callback(driver.close)
            self._found = found = await driver.devices()
            self._devices = inventory(found, self._config.sharing)
            if not self._devices:
                raise SessionError(f"no device to offer: the driver shows {len(found)}, all filtered or without memory")
            self._count_devices()
            await asyncio.to_thread(self._install)
            return await self._live(driver)

    async def _live(self, driver: Nvml) -> str:
        try:
            return await self._act(driver)
        except BaseExceptionGroup as group:
            expected, bugs = group.split(HamiError)
            if expected is None or bugs is not None:
                raise
            raise SessionError("; ".join(str(error) for error in expected.exceptions)) from group

    async def _act(self, driver: Nvml) -> str:
        async with asyncio.TaskGroup() as group:
            actors = [group.create_task(self._view.run())]
            self._prepare(await self._choose_mode())
            self._server = await self._serve(self._calls)
            try:
                actors += [
                    group.create_task(self._node_loop.reconcile(lambda: self._devices)),
                    group.create_task(self._node_loop.keep_library()),
                    group.create_task(self._rescan(driver)),
                    group.create_task(self._watch_health(driver)),
                ]
                if self._config.kubelet_socket:
                    actors.append(group.create_task(self._stay_registered(self._server)))
                cause = await self._end
            except asyncio.CancelledError:
                await self._server.stop()
                await self._node_loop.withdraw()
                raise
            await self._server.stop()
            for actor in actors:
                actor.cancel()
        return cause

    def _install(self) -> None:
        vgpu = Path(self._config.hook_path) / "vgpu"
        if self._config.library:
            library.install(Path(self._config.library), vgpu, __version__)
        library.write_preload(vgpu)
        cdi_files.remove_unfinished(Path(self._config.cdi_root))

    def _prepare(self, mode: Mode) -> None:
        """Make what answers the kubelet, and what keeps the Node right."""
        self._calls = Calls(
            self._config,
            vendor=self._vendor,
            view=self._view,
            resources=self._resources,
            mode=mode,
            metrics=self._metrics,
        )
        self._calls.adopt(self._config, self._found, self._devices)
        self._node_loop = NodeLoop(
            self._config, vendor=self._vendor, view=self._view, calls=self._calls, mode=mode, metrics=self._metrics
        )

    async def _choose_mode(self) -> Mode:
        node, obstacle = self._view.node, None
        if self._config.allocation == AUTO:
            node = await self._view.wait_node(lambda node: bool(versions(node)))
            obstacle = await self._obstacle()
        mode = choose(self._config.allocation, node, obstacle)
        self._decided_for = versions(node)
        logger.info("Allocations find their Pod", by=mode.name, because=mode.reason)
        for name in (IDENTITY, LOCK):
            self._metrics.mode.labels(name).set(mode.name == name)
        return mode

    async def _obstacle(self) -> str | None:
        """
        Return what identity allocation lacks here, as far as it can be tried out.

        A kubelet that is starting gets time to answer: falling back for a whole life is not to depend on who was first.
        """
        deadline = time.monotonic() + OBSTACLE_SECONDS
        while True:
            try:
                await self._resources.listed()
                await asyncio.to_thread(Path(self._config.cdi_root).mkdir, parents=True, exist_ok=True)
            except (HamiError, OSError) as error:
                if time.monotonic() > deadline:
                    return str(error)
                await asyncio.sleep(POLL_SECONDS)
            else:
                return None

    async def _serve(self, calls: Calls) -> PluginServer:
        handlers = Handlers(allocate=calls.allocate, preferred=calls.preferred, pre_start=calls.pre_start)
        server = PluginServer(
            self._config.plugin_directory / self._config.endpoint,
            handlers,
            replicas(self._devices, self._config.sharing),
        )
        await server.start()
        return server

    async def _stay_registered(self, server: PluginServer) -> None:
        """
        Register, and again whenever the kubelet stops listening; end the life when it or the socket is a new one.
        """
        while True:
            if await self._is_displaced(server):
                self.end("kubelet")
            elif reason := self._reason_to_register(server):
                await self._register(reason)
            await asyncio.sleep(POLL_SECONDS)

    async def _is_displaced(self, server: PluginServer) -> bool:
        """
        Say whether the kubelet has restarted, which takes every socket away.

        A socket of another instance that is alive is left alone: one of the two is about to end.
        """
        now = socket_identity(self._kubelet_socket)
        if self._kubelet is not None and now not in (None, self._kubelet):
            return True
        return not server.is_in_place() and not await asyncio.to_thread(is_served, server.path)

    def _reason_to_register(self, server: PluginServer) -> str | None:
        if not server.is_in_place() or socket_identity(self._kubelet_socket) is None:
            return None
        allocatable = (self._view.node.get("status") or {}).get("allocatable") or {}
        return reason_to_register(
            Standing(
                registered_seconds_ago=None if self._registered_at is None else time.monotonic() - self._registered_at,
                open_streams=server.open_streams,
                healthy_devices=len(self._devices) - len(self._unhealthy),
                allocatable=allocatable.get(self._config.resource),
            )
        )

    async def _register(self, reason: str) -> None:
        kubelet = socket_identity(self._kubelet_socket)
        try:
            await register(self._kubelet_socket, self._config.endpoint, self._config.resource)
        except KubeletError as error:
            self._metrics.registrations.labels("error").inc()
            logger.warning("Not registered", error=str(error))
            await asyncio.sleep(REGISTER_RETRY_SECONDS)
            return
        self._metrics.registrations.labels("ok").inc()
        self._kubelet, self._registered_at = kubelet, time.monotonic()
        logger.info("Registered with the kubelet", because=reason, resource=self._config.resource)

    async def _rescan(self, driver: Nvml) -> None:
        """End the life when the driver shows other devices than it did, or the Node other versions."""
        while True:
            await asyncio.sleep(RESCAN_SECONDS)
            if self._config.allocation == AUTO and versions(self._view.node) not in ((), self._decided_for):
                self.end("node")
            try:
                now = inventory(await driver.devices(), self._config.sharing)
            except NvmlError as error:
                logger.warning("The driver did not answer, its devices count as they were", error=str(error))
                continue
            if with_health(now, self._unhealthy) != self._devices:
                self.end("devices")

    async def _watch_health(self, driver: Nvml) -> None:
        if not self._config.health.is_on:
            logger.info("Health is not watched: DP_DISABLE_HEALTHCHECKS says so")
            return
        uuids = [device.id for device in self._devices]
        try:
            await driver.watch(uuids, self._config.health, self._mark)
        except NvmlError as error:
            self._mark(Sickness(frozenset(), str(error)))

    def _mark(self, sickness: Sickness) -> None:
        """
        Tell the kubelet and the Node that devices are unhealthy; only a new life makes them healthy again.
        """
        sick = sickness.uuids or frozenset(device.id for device in self._devices)
        if sick <= self._unhealthy:
            return
        logger.error("Devices are unhealthy", devices=sorted(sick), because=sickness.reason)
        self._unhealthy |= sick
        self._offer(with_health(self._devices, self._unhealthy))

    def _offer(self, devices: tuple[Device, ...]) -> None:
        """Tell the kubelet and the Node of *devices* in place of those before."""
        self._devices = devices
        self._count_devices()
        self._view.changed.set()
        if self._server is not None:
            self._server.offer(replicas(devices, self._config.sharing))

    def _count_devices(self) -> None:
        healthy = sum(device.healthy for device in self._devices)
        self._metrics.devices.labels("healthy").set(healthy)
        self._metrics.devices.labels("unhealthy").set(len(self._devices) - healthy)
