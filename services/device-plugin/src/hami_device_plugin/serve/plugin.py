"""
Run one session after another, and apply changed settings.

Owns what a change means: a session adopts it if it can, or a new session starts. Owns the pause after a failure, and
how restarts are counted.
Neighbours: `session` is what runs, `main` starts this.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from hami_device_plugin.adapters.checkpoint import FILE_NAME, Checkpoint
from hami_device_plugin.adapters.dra_kube import DraKube
from hami_device_plugin.adapters.kube import NodeKube
from hami_device_plugin.adapters.kubelet import PodResources
from hami_device_plugin.adapters.nvml.mock import MockLibrary
from hami_device_plugin.config.settings import Config
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.context import Conditions, Context
from hami_device_plugin.serve.node_settings import NodeSettings
from hami_device_plugin.serve.session import Session
from hamicommon.errors import HamiError
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.api.reflector import Backoff
from hamicommon.runtime.host.nvml import Nvml, NvmlError, NvmlHangError
from hamicommon.vendors import nvidia

BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_LAST_SECONDS = 30.0
"""HAMi's own pause after a failed start."""

logger = structlog.get_logger()


class Plugin:
    """The plugin of this process; it has at most one session at a time."""

    def __init__(self, settings: NodeSettings, metrics: Metrics) -> None:
        """Run by *settings*, now and after each change."""
        self._settings = settings
        settings.judge = lambda config: self._session.problems(config) if self._session is not None else ()
        self._metrics = metrics
        self._nvml = Nvml(self._mock_library)
        self._conditions: Conditions = {}
        self._session: Session | None = None
        self._trouble = "the device plugin is starting"
        """Why there is no session."""
        self._has_served = False
        self._skip_pause = asyncio.Event()

    def not_ready(self) -> str | None:
        """Return why the kubelet cannot hand out devices; None if it can."""
        return self._session.not_ready() if self._session is not None else self._trouble

    def status(self) -> str:
        """Return how devices reach containers."""
        return self._session.status() if self._session is not None else ""

    def reload(self) -> None:
        """Read the settings again, and start a new session."""
        self._settings.reload()
        self._restart("signal")

    async def run(self, kube: Kube) -> None:
        """
        Run until cancelled.

        Raises:
            NvmlError: the driver cannot be used, and the settings say not to wait for it.
        """
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_settings())
            await self._run_sessions(kube)

    async def _run_sessions(self, kube: Kube) -> None:
        backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_LAST_SECONDS)
        while True:
            self._skip_pause.clear()
            try:
                cause = await self._run_session(kube)
                backoff.reset()
            except HamiError as error:
                is_hang = isinstance(error, NvmlHangError)
                if isinstance(error, NvmlError) and not is_hang and self._is_driver_required:
                    raise
                cause = await self._pause(error, backoff)
            self._metrics.restarts.labels(cause).inc()
            logger.info("Starting a new session", cause=cause)

    def _mock_library(self) -> MockLibrary | None:
        """Return the library for devices that do not exist; None to use the driver's."""
        devices = self._settings.config.mock_devices
        return MockLibrary(devices) if devices else None

    async def _run_session(self, kube: Kube) -> str:
        await self._read_label(kube)
        self._session = session = Session(self._context(kube), is_driver_required=self._is_driver_required)
        try:
            return await session.run()
        finally:
            self._has_served |= session.is_serving

    def _context(self, kube: Kube) -> Context:
        config = self._settings.config
        vendor = nvidia.vendor(config.device_config[nvidia.SECTION])
        return Context(
            config=config,
            vendor=vendor,
            view=NodeKube(kube, config.node_name, vendor, self._follow_label),
            dra=DraKube(kube, config.node_name),
            nvml=self._nvml,
            resources=PodResources(Path(config.pod_resources_socket), config.resource),
            checkpoint=Checkpoint(config.plugin_directory / FILE_NAME),
            conditions=self._conditions,
            metrics=self._metrics,
        )

    @property
    def _is_driver_required(self) -> bool:
        """Whether the process ends if the driver cannot be used: only at its start, and only if the settings say so."""
        return self._settings.config.is_init_error_fatal and not self._has_served

    async def _pause(self, error: HamiError, backoff: Backoff) -> str:
        """Wait before the next session, or until the settings change."""
        self._session, self._trouble = None, str(error)
        seconds = backoff.next_seconds()
        logger.error("Cannot serve devices", error=str(error), retry_in_seconds=round(seconds, 1))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._skip_pause.wait()
        return "error"

    async def _read_label(self, kube: Kube) -> None:
        """
        Read the Node's label before a session, if it chooses a config.

        Raises:
            HamiError: the Node cannot be read, or its first label chooses no valid config.
        """
        if self._settings.follows_label:
            self._settings.select(await kube.get(f"/api/v1/nodes/{self._settings.config.node_name}"))

    def _follow_label(self, node: Mapping[str, Any]) -> None:
        """Apply the config that the label of *node* chooses."""
        if self._settings.select(node):
            self._apply(self._settings.config)

    async def _follow_settings(self) -> None:
        """Apply each changed configuration."""
        async for config in self._settings.changes():
            self._apply(config)

    def _apply(self, config: Config) -> None:
        """Let the running session adopt *config*, or start a new one."""
        if self._session is None or not self._session.adopt(config):
            self._restart("config")

    def _restart(self, cause: str) -> None:
        self._skip_pause.set()
        if self._session is not None:
            self._session.end(cause)
