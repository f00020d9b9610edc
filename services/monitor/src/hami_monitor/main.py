"""
Start the monitor: its settings, its API client, its loops and its HTTP server.
"""

import os
import sys
from functools import partial

import structlog
from prometheus_client import CollectorRegistry

from hami_monitor import __version__
from hami_monitor.adapters.kube import Events, Node, Pods
from hami_monitor.adapters.nvml import Driver
from hami_monitor.adapters.processes import Processes
from hami_monitor.config import NAME, Config, read_config
from hami_monitor.metrics.collector import MonitorCollector
from hami_monitor.serve.monitor import Monitor
from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.api.reviews import may_get
from hamicommon.runtime.program import logs, process
from hamicommon.runtime.serving import http
from hamicommon.runtime.serving.access import Access

logger = structlog.get_logger()


async def run(config: Config, processes: Processes) -> None:
    """
    Serve until cancelled, or until an unknown error; *processes* are the Node's.

    Raises:
        KubeConfigError: no API server can be reached.
        ServeError: the address is not usable.
    """
    for flag in config.without_effect:
        logger.warning("A flag has no effect", flag=flag)
    for warning in config.warnings:
        logger.warning("Setting ignored", problem=warning)
    async with await Kube.connect(config.kubeconfig or None, f"{NAME}/{__version__}") as kube:
        monitor = Monitor(
            config,
            Pods(kube, config.node_name),
            Node(kube, config.node_name),
            Driver(config.driver_root_here),
            processes,
            Events(kube),
        )
        registry = CollectorRegistry(auto_describe=False)
        registry.register(MonitorCollector(monitor.observe, monitor.status, has_legacy_names=config.has_legacy_metrics))
        app = http.application(
            NAME,
            __version__,
            live=monitor.rounds.live,
            ready=monitor.rounds.ready,
            registry=registry,
            access=Access(partial(may_get, kube, "/metrics")) if config.authenticates_scrapes else None,
        )
        server = await http.serve(
            app,
            config.metrics_bind_address,
            flag="--metrics-bind-address",
            max_connections=config.max_connections,
        )
        logger.info("Serving", port=server.port, node=config.node_name, hook_path=config.hook_path)
        try:
            await monitor.run()
        finally:
            await server.close()
            monitor.close()


def main() -> int:
    """Run `hami-monitor` and return its exit code."""
    try:
        config = read_config(sys.argv[1:], os.environ)
    except ConfigError as error:
        return process.refuse(NAME, error)
    logs.configure(config.verbosity)
    return process.run(lambda: run(config, Processes()), NAME)
