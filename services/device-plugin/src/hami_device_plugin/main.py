"""
Start the device plugin: its settings, its HTTP server, its API client, and the plugin itself.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.config.settings import AUTO_DISCOVERY, NAME, Config, parse_arguments
from hami_device_plugin.decide.probe.platform import unsupported_platform
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.node_settings import NodeSettings
from hami_device_plugin.serve.plugin import Plugin
from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.api.reviews import may_get
from hamicommon.runtime.program import logs, process
from hamicommon.runtime.serving import http
from hamicommon.runtime.serving.access import Access

ROOT = Path("/")
KERNEL_RELEASE = "proc/sys/kernel/osrelease"
SOC_FAMILY = "sys/devices/soc0/family"

logger = structlog.get_logger()


def main() -> int:
    """Run `hami-device-plugin` and return its exit code."""
    arguments = parse_arguments(sys.argv[1:])
    logs.configure(arguments.verbosity)
    try:
        settings = NodeSettings(arguments, os.environ)
        _check_platform(settings.config)
    except ConfigError as error:
        return process.refuse(NAME, error)
    return process.run(lambda: run(settings), NAME)


def _check_platform(config: Config) -> None:
    """
    Check the kind of machine, unless the settings say that its devices have NVML.

    Raises:
        ConfigError: devices cannot be shared here.
    """
    problem = unsupported_platform(_content(KERNEL_RELEASE), _content(SOC_FAMILY))
    if problem is not None and config.discovery == AUTO_DISCOVERY:
        raise ConfigError((f"--device-discovery-strategy=auto: {problem}, or set nvml if there is another GPU",))


def _content(path: str) -> str:
    """Return the content of the file at *path*; empty if it cannot be read."""
    try:
        return (ROOT / path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


async def run(settings: NodeSettings) -> None:
    """
    Serve until cancelled.

    Raises:
        KubeConfigError: no API server can be reached.
        NvmlError: the driver cannot be used, and the settings say not to wait for it.
        ServeError: the address is not usable.
    """
    config = settings.config
    for flag in config.without_effect:
        logger.warning("A flag has no effect", flag=flag)
    metrics = Metrics()
    metrics.registry.register(settings)
    plugin = Plugin(settings, metrics)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, plugin.reload)
    async with AsyncExitStack() as stack:
        kube = await stack.enter_async_context(await Kube.connect(config.kubeconfig or None, f"{NAME}/{__version__}"))
        if config.metrics_bind_address:
            access = Access(partial(may_get, kube, "/metrics")) if config.authenticates_scrapes else None
            app = http.application(
                NAME,
                __version__,
                ready=plugin.not_ready,
                status=plugin.status,
                registry=metrics.registry,
                access=access,
            )
            server = await http.serve(
                app,
                config.metrics_bind_address,
                flag="--metrics-bind-address",
                max_connections=config.max_connections,
            )
            logger.info("Serving health and metrics", address=config.metrics_bind_address, port=server.port)
            stack.push_async_callback(server.close)
        await plugin.run(kube)
