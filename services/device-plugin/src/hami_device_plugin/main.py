"""
Start the device plugin: its settings, its HTTP server, its API client, and the plugin itself.
"""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack

import structlog

from hami_device_plugin import __version__
from hami_device_plugin.adapters import platform
from hami_device_plugin.config.arguments import NAME, parse_arguments
from hami_device_plugin.config.settings import AUTO_DISCOVERY, Config
from hami_device_plugin.decide.hardware.platform import unsupported_platform
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.node_settings import NodeSettings
from hami_device_plugin.serve.plugin import Plugin
from hamicommon.config import ConfigError
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.program import logs, process
from hamicommon.runtime.serving import http

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
    problem = unsupported_platform(platform.kernel_release(), platform.soc_family())
    if problem is not None and config.discovery == AUTO_DISCOVERY:
        raise ConfigError((f"--device-discovery-strategy=auto: {problem}, or set nvml if there is another GPU",))


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
        if config.metrics_bind_address:
            app = http.application(
                NAME, __version__, ready=plugin.not_ready, status=plugin.status, registry=metrics.registry
            )
            server = await http.serve(app, config.metrics_bind_address, flag="--metrics-bind-address")
            logger.info("Serving health and metrics", address=config.metrics_bind_address, port=server.port)
            stack.push_async_callback(server.close)
        kube = await stack.enter_async_context(await Kube.connect(config.kubeconfig, f"{NAME}/{__version__}"))
        await plugin.run(kube)
