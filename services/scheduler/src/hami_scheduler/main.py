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
from functools import partial
from typing import Any

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from hami_scheduler import __version__, cli
from hami_scheduler.bind.fences import Marks
from hami_scheduler.bind.locking import NodeLocks
from hami_scheduler.config import DEVICE_SERIES_LIMIT, NAME, Config, left_out, read_config
from hami_scheduler.explain.offline import DEVICE_CONFIG_KEY, DEVICE_POLICY_KEY, NODE_POLICY_KEY, SCHEDULER_NAME_KEY
from hami_scheduler.serve.background import periodic
from hami_scheduler.serve.background.cluster_feed import ClusterFeed
from hami_scheduler.serve.background.node_resources import NodeResources
from hami_scheduler.serve.background.readiness import Readiness
from hami_scheduler.serve.background.takeover import Takeover
from hami_scheduler.serve.context import Clock, Context, Settings
from hami_scheduler.serve.explainer import Explainer
from hami_scheduler.serve.kube.api import KubeApi
from hami_scheduler.serve.listen.http import BODY_LIMIT_BYTES, Application, add_explanations, add_verbs
from hami_scheduler.serve.listen.metrics import ClusterCollector, Counters, Observed, verb_times
from hami_scheduler.values.inventory import Problem
from hamicommon.config.device_config import ConfigError
from hamicommon.runtime.api.api_metrics import ApiMetrics
from hamicommon.runtime.api.kube import Kube
from hamicommon.runtime.api.reviews import may_get
from hamicommon.runtime.program import garbage, logs, process
from hamicommon.runtime.program.device_config import DeviceConfigFile
from hamicommon.runtime.serving.access import Access
from hamicommon.runtime.serving.http import ServeError, application, serve
from hamicommon.runtime.serving.tls import FileCertificate

_BODIES_BYTES = 3 * BODY_LIMIT_BYTES
"""Of bodies of kube-scheduler that may be on their way together; it asks about one Pod at a time."""

logger = structlog.get_logger()


def main() -> int:
    """Run `hami-scheduler`, or one of its commands, and return the exit code."""
    if sys.argv[1:2] and sys.argv[1] in cli.COMMANDS:
        return cli.main(sys.argv[1:])
    try:
        config = read_config(sys.argv[1:], os.environ, socket.gethostname())
    except ConfigError as error:
        return process.refuse(NAME, error)
    logs.configure(config.log_verbosity)
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
        self._kube = kube
        self._counters = Counters(registry)
        self.api = KubeApi(kube, config.scheduler_name or NAME, _now)
        marks = Marks()
        self.readiness = Readiness(config, kube, lambda: self.feed.reflectors)
        self.takeover = Takeover(self.api, self.readiness, lambda: self.feed.cluster, marks)
        locks = NodeLocks(
            self.api,
            _now,
            timedelta(seconds=config.node_lock_timeout_seconds),
            config.scheduler_name,
            self.takeover.confirm,
        )
        self._resources = NodeResources(
            self.api,
            lambda: (rules.vendor for rules in self.feed.cluster.vendors),
            self._map_count,
        )
        self.feed = ClusterFeed(config, kube, devices, locks, self._resources, self._report)
        self.context = Context(
            self.feed.cluster,
            self.api,
            locks,
            Clock(_now, time.monotonic),
            Settings(config.policies, config.prioritizes, config.lock_wait_seconds, config.wire_version),
            self.takeover.blocked,
            self.takeover.blocked_for,
            self.takeover.confirm,
            lambda: self.takeover.term,
            marks,
            self._counters.refused_filter,
        )
        observed = Observed(
            self.readiness.watch_ages,
            lambda: self.api.events_lost,
            lambda: self.context.sampled_filters,
            self.readiness.is_leader,
            lambda: self.context.waits.now(_now(), self.feed.cluster.is_deleted),
            lambda: self.takeover.unfenced_count,
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
        config = self.config
        new_app = partial(
            application,
            NAME,
            __version__,
            ready=self.takeover.not_ready,
            registry=self._registry,
            access=Access(partial(may_get, self._kube, "/metrics")) if config.authenticates_scrapes else None,
        )

        async def listen(app: Application, message: str, flag: str, address: str, **limits: Any) -> int:
            server = await serve(app, address, flag=flag, max_connections=config.max_connections, **limits)
            stack.push_async_callback(server.close)
            logger.info(message, address=address, port=server.port)
            return server.port

        verbs = new_app(max_body_bytes=BODY_LIMIT_BYTES)
        add_verbs(verbs, self.context, verb_times(self._registry))
        tls = FileCertificate(config.cert_file, config.key_file) if config.cert_file else None
        for_verbs = await listen(
            verbs, "Serving kube-scheduler", "--http_bind", config.http_bind, tls=tls, held_bytes=_BODIES_BYTES
        )
        for_metrics = for_people = None
        address = config.metrics_bind_address
        if address:
            for_metrics = await listen(new_app(), "Serving metrics", "--metrics-bind-address", address)
        address = config.explain_bind_address
        if address:
            questions = new_app()
            add_explanations(questions, self._explainer(), self._snapshot_settings)
            try:
                for_people = await listen(questions, "Serving explanations", "--explain-bind-address", address)
            except ServeError as error:  # Scheduling goes on.
                logger.warning("Explanations are not served", reason=str(error))
        return for_verbs, for_metrics, for_people

    def _explainer(self) -> Explainer:
        return Explainer(
            lambda: self.feed.cluster,
            self.api.read_pod,
            self.api.collection,
            self.context.wakeups.candidates,
            self.config.policies,
            self.takeover.blocked,
            self.config.scheduler_name,
            lambda: left_out(self.config, self._devices.config),
        )

    def actors(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs until the process ends, one coroutine each."""
        return [
            self.feed.follow_config(self.context.use),
            *([self.readiness.lease.run()] if self.readiness.lease else []),
            self.takeover.run(),
            self.api.write_events(),
            *periodic.jobs(self.context, self._resources, self._counters.woken.inc),
            garbage.keep_small(self.feed.synced),
        ]

    def _map_count(self, device_class: str) -> None:
        self.feed.cluster.map_count(device_class)

    def _snapshot_settings(self) -> dict[str, str]:
        """Return the settings that a snapshot holds."""
        policies = self.config.policies
        return {
            DEVICE_CONFIG_KEY: self._devices.text,
            NODE_POLICY_KEY: policies.node,
            DEVICE_POLICY_KEY: policies.device,
            SCHEDULER_NAME_KEY: self.config.scheduler_name,
        }

    def _report(self, kind: str, name: str, problem: Problem) -> None:
        """Count and log a part of an object that cannot be used."""
        self._counters.problems.labels(kind, problem.key).inc()
        logger.warning(
            "Part of an object is not as it should be", kind=kind, name=name, key=problem.key, reason=problem.reason
        )


def _now() -> datetime:
    return datetime.now(UTC)
