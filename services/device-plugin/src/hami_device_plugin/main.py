"""
Run the device plugin: read the settings, serve health and metrics, and live one life after the other.

Owns the process: arguments, signals, the HTTP server, and how long to wait before beginning anew.
Neighbours: `life` is one life, `hamicommon.runtime` the process around it.
"""

import argparse
import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.arguments import NAME, parse_arguments
from hami_device_plugin.config import Config, load
from hami_device_plugin.life import Life
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.nvml import NvmlError
from hamicommon.config import ConfigError
from hamicommon.errors import HamiError
from hamicommon.runtime import http, logs, process
from hamicommon.runtime.kube import Kube
from hamicommon.runtime.reflector import Backoff

BACKOFF_FIRST_SECONDS = 1.0
BACKOFF_LAST_SECONDS = 30.0
"""HAMi's own pause after a failed start."""

logger = structlog.get_logger()


class Plugin:
    """The process's one plugin; it has at most one life at a time."""

    def __init__(self, arguments: argparse.Namespace, config: Config) -> None:
        """Run with *config*; its files and *arguments* are read again at SIGHUP."""
        self._arguments = arguments
        self._config = config
        self._metrics = Metrics()
        self._life: Life | None = None
        self._hangup = asyncio.Event()

    async def run(self) -> None:
        """
        Live until cancelled.

        Raises:
            KubeConfigError: there is no way to an API server.
            NvmlError: the driver cannot be used, and is not to be waited for.
            ServeError: the address is not usable.
        """
        config = self._config
        for warning in config.warnings:
            logger.warning("Part of the settings has no effect", what=warning)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_hangup)
        async with AsyncExitStack() as stack:
            if config.metrics_bind_address:
                app = http.application(NAME, __version__, ready=self._not_ready, registry=self._metrics.registry)
                server = await http.serve(app, config.metrics_bind_address, flag="--metrics-bind-address")
                logger.info("Serving health and metrics", address=config.metrics_bind_address, port=server.port)
                stack.push_async_callback(server.close)
            kube = await stack.enter_async_context(await Kube.connect(config.kubeconfig, f"{NAME}/{__version__}"))
            await self._live(config, kube)

    async def _live(self, config: Config, kube: Kube) -> None:
        backoff = Backoff(BACKOFF_FIRST_SECONDS, BACKOFF_LAST_SECONDS)
        while True:
            self._life = Life(config, kube, self._metrics)
            try:
                cause = await self._life.run()
                backoff.reset()
            except NvmlError as error:
                if config.is_init_error_fatal:
                    raise
                cause = await self._pause(error, backoff)
            except HamiError as error:
                cause = await self._pause(error, backoff)
            self._metrics.restarts.labels(cause).inc()
            logger.info("Beginning anew", cause=cause)
            config = self._reloaded(config)

    async def _pause(self, error: HamiError, backoff: Backoff) -> str:
        """
        Wait before the next life, or until a signal asks for it.
        """
        seconds = backoff.next_seconds()
        logger.error("Cannot serve devices", error=str(error), again_in_seconds=round(seconds, 1))
        self._hangup.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._hangup.wait()
        return "error"

    def _reloaded(self, config: Config) -> Config:
        """
        Return the settings as the files have them now, *config* where these are wrong.
        """
        try:
            return load(self._arguments, os.environ, read_file)
        except HamiError as error:
            logger.error("The settings are wrong, the last ones stay", error=str(error))
            return config

    def _on_hangup(self) -> None:
        self._hangup.set()
        if self._life is not None:
            self._life.end("signal")

    def _not_ready(self) -> str | None:
        return self._life.not_ready() if self._life is not None else "the device plugin is starting"


def read_file(path: str) -> str | None:
    """
    Return the text of the file at *path*; None where there is none that can be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def main() -> int:
    """Run `hami-device-plugin` and return its exit code."""
    arguments = parse_arguments(sys.argv[1:])
    try:
        config = load(arguments, os.environ, read_file)
    except ConfigError as error:
        return process.refuse(NAME, error)
    logs.configure(config.verbosity)
    return process.run(Plugin(arguments, config).run, NAME)
