"""
Run one session: probe the Node, serve it, and keep what is served up to date.

A session ends when the kubelet restarts, the driver shows other devices or was away, the Node reports another runtime,
or a setting changes that a running session cannot adopt. The next session starts from nothing: what must last is in the
API, in the kubelet's checkpoint and in the CDI directory.
Neighbours: `plugin` starts sessions, `probe` finds out what the Node is, `service` serves it.
"""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from dataclasses import replace

from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.probe.enforcement import DRIVER
from hami_device_plugin.decide.replicas import limits
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.node_loop import install_files
from hami_device_plugin.serve.probe.devices import NodeDevices, find_devices
from hami_device_plugin.serve.probe.driver import Driver
from hami_device_plugin.serve.probe.findings import probe
from hami_device_plugin.serve.probe.silent_driver import open_driver
from hami_device_plugin.serve.service import Service
from hami_device_plugin.serve.sole_kind import SoleKind
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.runtime.host.nvml import NvmlError


class SessionError(HamiError):
    """Several parts of a session failed."""


class Session:
    """One session; `run` runs it."""

    def __init__(self, context: Context, *, is_driver_required: bool) -> None:
        """Prepare a session; unless *is_driver_required*, it waits for a driver that is missing."""
        self._context = context
        self._is_driver_required = is_driver_required
        self._driver = Driver(context.nvml, context.view, context.metrics, context.config.driver_root_here)
        self._sole = SoleKind(context)
        self._devices: NodeDevices | None = None
        """None until the devices are found."""
        self._service: Service | None = None
        """None until the kubelet can call."""
        self._end: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def is_serving(self) -> bool:
        """Whether the kubelet can call."""
        return self._service is not None

    def not_ready(self) -> str | None:
        """Return why the kubelet cannot hand out devices; None if it can."""
        problem = self._sole.problem or self._driver.problem
        if problem is not None:
            return problem
        return "the device plugin is starting" if self._service is None else self._service.not_ready()

    def status(self) -> str:
        """Return how devices reach containers, and who limits their memory."""
        return "" if self._service is None else self._service.status()

    def end(self, cause: str) -> None:
        """End the session for *cause*; the first cause counts."""
        if not self._end.done():
            self._end.set_result(cause)

    def problems(self, config: Config) -> Iterator[str]:
        """Yield what the kubelet or the API server would not take of the devices by *config*."""
        return limits.problems(self._offered(config), config.sharing)

    def adopt(self, config: Config) -> bool:
        """Continue with *config* and return True; False if that needs a new session."""
        return self._service is not None and self._service.adopt(config)

    async def run(self) -> str:
        """
        Serve until a new session is needed, and return the cause.

        Raises:
            NvmlError: the driver cannot be used.
            HamiError: the session cannot start for another reason.
        """
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._context.resources.close)
            stack.push_async_callback(self._close_nvml)
            try:
                async with asyncio.TaskGroup() as group:
                    phases = group.create_task(self._run_phases())
                    try:
                        cause = await self._end
                    except asyncio.CancelledError:
                        if self._service is not None:
                            await self._service.withdraw()
                        phases.cancel()
                        await asyncio.wait({phases})
                        raise
                    if self._service is not None:
                        await self._service.stop()
                    phases.cancel()
            except BaseExceptionGroup as group:
                error = _known(group)
                if error is None:
                    raise
                raise error from group
            return cause

    async def _run_phases(self) -> None:
        """Run until cancelled. Raises: NvmlError, HamiError."""
        context = self._context
        async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
            group.create_task(context.view.run())
            await context.view.wait_node(bool)
            stack.callback(self._sole.release)
            await self._sole.take()

            await open_driver(context, self._driver, is_required=self._is_driver_required)
            self._devices = devices = await find_devices(context, stack)
            if devices.mig is not None:
                group.create_task(devices.mig.keep(lambda: self.end("mig")))
            await asyncio.to_thread(install_files, context.config)
            found = await probe(context, self._offered(context.config))
            self._devices = devices = replace(devices, leaves_reserve=found.enforcement.by == DRIVER)

            service = Service(context, self._driver, devices, found, self.end)
            await service.start()
            self._service = service

            for loop in service.loops():
                group.create_task(loop)
            self.end(await service.run())

    def _offered(self, config: Config) -> tuple[Device, ...]:
        if self._service is not None:
            return self._service.devices(config)
        return () if self._devices is None else self._devices.by(config, self._context.conditions)

    async def _close_nvml(self) -> None:
        with suppress(NvmlError):
            await self._context.nvml.close()


def _known(group: BaseExceptionGroup) -> HamiError | None:
    """Return the error of a session that failed in a known way; None if anything else failed."""
    errors = list(_leaves(group))
    known = [error for error in errors if isinstance(error, HamiError)]
    if len(known) < len(errors):
        return None
    return known[0] if len(known) == 1 else SessionError("; ".join(map(str, known)))


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    """Yield the errors in *group* and its groups."""
    for error in group.exceptions:
        yield from _leaves(error) if isinstance(error, BaseExceptionGroup) else (error,)
