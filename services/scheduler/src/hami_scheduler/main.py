"""
The process: read the settings, wire the parts, serve, and drain on SIGTERM.

Crash-only: everything it knows, except reservations, comes back from the API server.
"""

import asyncio
import math
import os
import socket
import sys
import time
from collections.abc import Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from hami_scheduler import __version__, cli
from hami_scheduler.config import DEVICE_SERIES_LIMIT, NAME, Config, left_out, read_config
from hami_scheduler.explain.offline import DEVICE_CONFIG_KEY, DEVICE_POLICY_KEY, NODE_POLICY_KEY
from hami_scheduler.serve.background import periodic
from hami_scheduler.serve.background.cluster_feed import ClusterFeed
from hami_scheduler.serve.background.node_resources import NodeResources
from hami_scheduler.serve.background.readiness import Readiness
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.explainer import Explainer
from hami_scheduler.serve.kube.api import KubeApi
from hami_scheduler.serve.listen import listeners
from hami_scheduler.serve.listen.metrics import ClusterCollector, Observed, Problems, Refused, woken_pods
from hami_scheduler.serve.locking import NodeLocks
from hami_scheduler.values.inventory import Problem
from hamicommon.config import ConfigError
from hamicommon.runtime.api.api_metrics import ApiMetrics
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.program import garbage, logs, process
from hamicommon.runtime.program.device_config import DeviceConfigFile

logger = structlog.get_logger()


def main() -> int:
    """Run `hami-scheduler`, or one of its commands, and return the exit code."""
    if sys.argv[1:2] and sys.argv[1] in cli.COMMANDS:
        return cli.main(sys.argv[1:])
    try:
        config = read_config(sys.argv[1:], os.environ, socket.gethostname())
    except ConfigError as error:
        return process.refuse(NAME, error)
    logs.configure(config.verbosity)
    return process.run(lambda: run(config), NAME, uvloop.new_event_loop)


async def run(config: Config) -> None:
    """
    Serve until cancelled, then finish the requests in progress.

    Raises:
        ConfigError: the device config is wrong.
        KubeConfigError: there is no way to an API server.
        ServeError: an address or the certificate is not usable.
    """
    for flag in config.without_effect:
        logger.warning("A flag has no effect", flag=flag)
    devices = DeviceConfigFile(config.device_config_file)
    registry = CollectorRegistry()
    kube = await Kube.connect(
        config.kubeconfig or None, f"{NAME}/{__version__}", ApiMetrics(registry, "hami_scheduler")
    )
    async with kube, AsyncExitStack() as stack:
        service = Service(config, kube, devices, registry)
        await service.start(stack)
        async with asyncio.TaskGroup() as group:
            for actor in service.actors():
                group.create_task(actor)


class Service:
    """The parts of one scheduler, wired together."""

    def __init__(self, config: Config, kube: Kube, devices: DeviceConfigFile, registry: CollectorRegistry) -> None:
        """Wire; nothing happens before `start`."""
        self.config = config
        self._devices = devices
        self._registry = registry
        self._problems = Problems(registry)
        self._woken = woken_pods(registry)
        self.api = KubeApi(kube, config.scheduler_name or NAME, _now)
        locks = NodeLocks(self.api, _now, timedelta(seconds=config.node_lock_timeout_seconds))
        self._resources = NodeResources(self.api, lambda: (frame.vendor for frame in self.feed.cluster.vendors))
        self.feed = ClusterFeed(config, kube, devices, locks, self._resources, self._report)
        self.readiness = Readiness(config, kube, lambda: self.feed.reflectors)
        self.context = Context(
            self.feed.cluster,
            self.api,
            locks,
            Clock(_now, time.monotonic),
            Settings(config.policies, config.prioritizes, config.lock_wait_seconds, config.wire_version),
            self.readiness.blocked,
            Refused(registry).count,
        )
        observed = Observed(
            self.readiness.watch_ages,
            lambda: self.api.events_lost,
            lambda: self.context.sampled_filters,
            self.readiness.is_leader,
            lambda: self.context.waits.now(_now()),
        )
        limit = {"always": math.inf, "never": -1, "auto": DEVICE_SERIES_LIMIT}[config.device_metrics]
        registry.register(
            ClusterCollector(
                lambda: self.feed.cluster, observed, has_legacy_names=config.has_legacy_metrics, device_limit=limit
            )
        )
        registry.register(devices)

    async def start(self, stack: AsyncExitStack) -> tuple[int, int | None, int | None]:
        """Listen, and return the ports for kube-scheduler, metrics and people; all drain when *stack* closes."""
        config, ready = self.config, self.readiness.unsynced
        explainer = Explainer(
            lambda: self.feed.cluster,
            self.api.read_pod,
            self.context.wakeups.candidates,
            config.policies,
            self.readiness.blocked,
            lambda: left_out(config, self._devices.config),
        )
        return (
            await listeners.serve_verbs(config, self.context, self._registry, ready, stack),
            await listeners.serve_metrics(config.metrics_bind_address, self._registry, ready, stack),
            await listeners.serve_explanations(
                config.explain_bind_address, explainer, self._snapshot_settings, self._registry, ready, stack
            ),
        )

    def actors(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs until the process ends, one coroutine each."""
        return [
            self.feed.follow_config(self.context.use),
            *([self.readiness.lease.run()] if self.readiness.lease else []),
            self.api.write_events(),
            *periodic.jobs(self.context, self._resources, self._woken.inc),
            garbage.keep_small(self.feed.synced),
        ]

    def _snapshot_settings(self) -> dict[str, str]:
        """Return the settings that a snapshot holds."""
        policies = self.config.policies
        return {
            DEVICE_CONFIG_KEY: self._devices.text,
            NODE_POLICY_KEY: policies.node,
            DEVICE_POLICY_KEY: policies.device,
        }

    def _report(self, kind: str, name: str, problem: Problem) -> None:
        """Count and log a part of an object that cannot be used."""
        self._problems.count(kind, problem.key)
        logger.warning(
            "Part of an object is not as it should be", kind=kind, name=name, key=problem.key, reason=problem.reason
        )


def _now() -> datetime:
    return datetime.now(UTC)
