"""
Serve the devices of the Node's last inventory while the driver does not answer at the start.

The kubelet calls PreStartContainer at each start of a container, and the start fails if no plugin answers. A container
that has run before needs nothing new: its CDI spec is complete and still there, so it may restart. All devices are
unhealthy for kubelet and scheduler, so there are no other containers.
Must never call the driver, nor write a spec.
Neighbours: `driver` knows that the driver is silent, `session` ends this when it answers.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import structlog

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.checkpoint import CheckpointError
from hami_device_plugin.adapters.files import host_files_of
from hami_device_plugin.adapters.kubelet import KubeletError, PluginServer
from hami_device_plugin.adapters.regions import prepare_region
from hami_device_plugin.adapters.sockets import SocketError
from hami_device_plugin.decide.allocate.allocation import Container, region_file
from hami_device_plugin.decide.allocate.cdi.spec import region_name
from hami_device_plugin.decide.allocate.owner import Allocated, OwnerError, owner
from hami_device_plugin.decide.replicas.ids import replicas
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.kubelet_loop import KubeletLoop
from hami_device_plugin.serve.probe.driver import Driver
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.node_devices import decode_node_devices, encode_node_devices

RETRY_SECONDS = 5.0

logger = structlog.get_logger()


class DriverSilentError(HamiError):
    """A call needs the driver, which does not answer."""


async def open_driver(context: Context, driver: Driver, *, is_required: bool) -> None:
    """
    Open *driver*; while it is silent, serve the devices that the Node has recorded.

    Raises:
        NvmlError: *is_required*, and the driver answers that it cannot be used.
    """
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(RecordedDevices(context, driver).serve())
        await driver.open(is_required=is_required)
        serving.cancel()


class RecordedDevices:
    """The devices that an earlier session offered."""

    def __init__(self, context: Context, driver: Driver) -> None:
        """Serve what the Node has recorded, because *driver* is silent."""
        self._context = context
        self._driver = driver

    async def serve(self) -> None:
        """Wait until the driver is silent. Then offer the recorded devices as unhealthy, until cancelled."""
        await self._driver.silent.wait()
        devices = self._recorded()
        if not devices:
            logger.warning("No devices are offered: the Node has no inventory of an earlier start")
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._announce(devices))
            while True:
                try:
                    await self._serve_one_kubelet(devices)
                except (KubeletError, SocketError) as error:
                    logger.warning("The recorded devices are not served", error=str(error))
                    await asyncio.sleep(RETRY_SECONDS)

    def _recorded(self) -> tuple[Device, ...]:
        try:
            found = decode_node_devices(self._context.view.annotations.get(self._context.vendor.register_key, "[]"))
        except DecodeError:
            return ()
        return tuple(replace(device, healthy=False) for device in found)

    async def _announce(self, devices: Sequence[Device]) -> None:
        """Keep *devices* in the Node's annotation, until cancelled."""
        key, text = self._context.vendor.register_key, encode_node_devices(devices, self._context.config.wire_version)
        while True:
            try:
                if self._context.view.annotations.get(key) != text:
                    await self._context.view.annotate_node({key: text})
            except HamiError as error:
                logger.warning("The Node still says that its devices are healthy", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _serve_one_kubelet(self, devices: Sequence[Device]) -> None:
        """Serve *devices* until the kubelet has restarted, which removes the socket."""
        config = self._context.config
        in_use = {replica for entry in self._context.checkpoint.of(config.resource) for replica in entry.replicas}
        server = PluginServer(config.socket(config.resource), self, replicas(devices, config.sharing, in_use))
        await server.start()
        try:
            if not config.kubelet_socket:
                await asyncio.Event().wait()
            loop = KubeletLoop(config.kubelet_socket, config.resource, server, self._context.metrics)
            await loop.run(lambda: self._context.view.node, lambda: 0)
        finally:
            await server.stop()

    async def allocate(self, requests: Sequence[Sequence[str]]) -> NoReturn:
        """Answer Allocate: there is nothing to give."""
        raise DriverSilentError(f"no device is healthy: {self._driver.problem}")

    async def preferred(self, requests: Sequence[PreferredRequest]) -> NoReturn:
        """Answer GetPreferredAllocation: there is nothing to prefer."""
        raise DriverSilentError(f"no device is healthy: {self._driver.problem}")

    async def pre_start(self, wanted: frozenset[str]) -> None:
        """
        Answer PreStartContainer: let a container restart under the spec of its last start.

        Raises:
            DriverSilentError: it has none.
        """
        try:
            entries = await asyncio.to_thread(self._context.checkpoint.read)
            found = owner(wanted, self._context.config.resource, entries)
        except (CheckpointError, OwnerError) as error:
            raise DriverSilentError(f"{self._driver.problem}; {error}") from error
        await asyncio.to_thread(self._check_and_clear, found)

    def _check_and_clear(self, containers: Sequence[Allocated]) -> None:
        """Clear the region of each container; it starts without contents at each start."""
        for each in containers:
            if each.device is None:
                continue  # Under the lock Allocate gave the container everything.
            shown = f"Pod with UID {each.pod_uid}, container {each.container}"
            if not cdi_files.spec_path(Path(self._context.config.cdi_root), each.pod_uid, each.device).exists():
                raise DriverSilentError(f"{shown} has not started before, and {self._driver.problem}")
            container = Container(each.pod_uid, each.container)
            region = Path(region_file(self._context.config.hook_path, container, region_name(each.device)))
            with host_files_of(f"{shown} cannot be prepared"):
                if region.exists():
                    prepare_region(region)
