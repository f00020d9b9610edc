"""
Run the device plugin: read the settings, serve health and metrics, and live one life after the other.

Owns the process: arguments, signals, the HTTP server, what becomes of a changed file, and how long to wait before
beginning anew.
Neighbours: `session` is one life, `hamicommon.runtime` the process around it.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters.nvml import NvmlError
from hami_device_plugin.arguments import NAME, parse_arguments
from hami_device_plugin.config import Config, files, load
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.session import Session
from hamicommon.config import ConfigError
from hamicommon.errors import HamiError
from hamicommon.runtime import http, logs, process
from hamicommon.runtime.device_config import ConfigFiles
from hamicommon.runtime.kube import Kube
from hamicommon.runtime.reflector import Backoff

BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_LAST_SECONDS = 30.0
"""HAMi's own pause after a failed start."""

logger = structlog.get_logger()


class Plugin:
    """The process's one plugin; it has at most one life at a time."""

    def __init__(self, settings: ConfigFiles[Config]) -> None:
        """Run by *settings*, as they are and as they come to be."""
        self._settings = settings
        self._metrics = Metrics()
        self._metrics.registry.register(settings)
        self._session: Session | None = None
        self._anew = asyncio.Event()
        """Set when a new life is not to wait."""

    async def run(self) -> None:
        """
        Live until cancelled.

        Raises:
            KubeConfigError: there is no way to an API server.
            NvmlError: the driver cannot be used, and is not to be waited for.
            ServeError: the address is not usable.
        """
        config = self._settings.config
        for flag in config.without_effect:
            logger.warning("A flag has no effect", flag=flag)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)
        async with AsyncExitStack() as stack:
            if config.metrics_bind_address:
                app = http.application(NAME, __version__, ready=self._not_ready, registry=self._metrics.registry)
                server = await http.serve(app, config.metrics_bind_address, flag="--metrics-bind-address")
                logger.info("Serving health and metrics", address=config.metrics_bind_address, port=server.port)
                stack.push_async_callback(server.close)
            kube = await stack.enter_async_context(await Kube.connect(config.kubeconfig, f"{NAME}/{__version__}"))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_settings())
                await self._live(kube)

    async def _live(self, kube: Kube) -> None:
        backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_LAST_SECONDS)
        while True:
            config = self._settings.config
            self._anew.clear()
            self._session = Session(config, kube, self._metrics)
            try:
                cause = await self._session.run()
                backoff.reset()
            except NvmlError as error:
                if config.is_init_error_fatal:
                    raise
                cause = await self._pause(error, backoff)
            except HamiError as error:
                cause = await self._pause(error, backoff)
            self._metrics.restarts.labels(cause).inc()
            logger.info("Beginning anew", cause=cause)

    async def _pause(self, error: HamiError, backoff: Backoff) -> str:
        """
        Wait before the next life, or until there is a reason not to.
        """
        self._session = None
        seconds = backoff.next_seconds()
        logger.error("Cannot serve devices", error=str(error), again_in_seconds=round(seconds, 1))
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._anew.wait()
        return "error"

    async def _follow_settings(self) -> None:
        """Have a changed configuration take effect: within this life where that is possible, else by another."""
        async for config in self._settings.changes():
            if self._session is None or not self._session.adopt(config):
                self._begin_anew("config")

    def _on_hangup(self) -> None:
        self._settings.reload()
        self._begin_anew("signal")

    def _begin_anew(self, cause: str) -> None:
        self._anew.set()
        if self._session is not None:
            self._session.end(cause)

    def _not_ready(self) -> str | None:
        return self._session.not_ready() if self._session is not None else "the device plugin is starting"


def main() -> int:
    """Run `hami-device-plugin` and return its exit code."""
    arguments = parse_arguments(sys.argv[1:])
    logs.configure(arguments.verbosity)
    try:
        settings = ConfigFiles(files(arguments, os.environ), lambda texts: load(arguments, os.environ, texts))
    except ConfigError as error:
        return process.refuse(NAME, error)
    return process.run(Plugin(settings).run, NAME)
