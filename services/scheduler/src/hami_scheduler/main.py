"""
The process: reads its settings, follows the API server, serves, and drains on SIGTERM.

Owns the wiring. Crash-only: everything it knows beyond reservations comes back from the API server.
"""

import asyncio
import gc
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
import uvloop
from prometheus_client import CollectorRegistry

from hami_scheduler import __version__, cli
from hami_scheduler.config import DEVICE_SERIES_LIMIT, NAME, Config, left_out, read_config
from hami_scheduler.explain.offline import DEVICE_CONFIG_KEY, DEVICE_POLICY_KEY, NODE_POLICY_KEY
from hami_scheduler.serve import kube as api
from hami_scheduler.serve.explainer import Explainer
from hami_scheduler.serve.extender import Clock, Extender, Settings
from hami_scheduler.serve.http import BODY_LIMIT_BYTES, add_explanations, add_routes
from hami_scheduler.serve.leader import Leadership
from hami_scheduler.serve.locking import NodeLocks
from hami_scheduler.serve.metrics import ClusterCollector, Observed, Problems, Refused, Verbs, woken_pods
from hami_scheduler.state.cluster import Cluster
from hami_scheduler.values.inventory import Problem
from hami_scheduler.values.vendor import VendorFrame
from hami_scheduler.values.vendors import vendor_frames
from hamicommon.config import ConfigError, DeviceConfig
from hamicommon.runtime import logs, process
from hamicommon.runtime.api_metrics import ApiMetrics
from hamicommon.runtime.device_config import DeviceConfigFile
from hamicommon.runtime.http import ServeError, application, serve
from hamicommon.runtime.kube import Kube, Reflector
from hamicommon.runtime.tls import FileCertificate

EXPIRY_SECONDS = 0.5
"""How often reservations are looked through; a filter does so, too. Who waits for their room waits this much longer."""
RECOUNT_SECONDS = 60.0
DEVICE_CONFIG_SECONDS = 5.0
"""How often the device config's file is looked at."""
_COLLECTED_AT = 10_000
"""New objects after which garbage is looked for: in some thirty filters once, instead of at every other."""
WAKE_SECONDS = 0.25
"""How often refused Pods are looked through; kube-scheduler itself usually asks within 10 ms of an event."""

logger = structlog.get_logger()

Object = dict[str, Any]


def main() -> int:
    """Run `hami-scheduler`, or what people ask of it, and return the exit code."""
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


class View:
    """The cluster as one device config makes it, kept in step by list and watch."""

    def __init__(self, service: "Service", vendors: tuple[VendorFrame, ...]) -> None:
        """Know nothing before `follow`."""
        self._service = service
        self.cluster = cluster = Cluster(vendors, service.report)
        kube, selector = service.kube, service.config.node_label_selector
        self.reflectors = {
            "pods": api.pods(
                kube,
                lambda pods: cluster.replace_pods(pods, time.monotonic()),
                cluster.put_pod,
                cluster.drop_pod,
            ),
            "nodes": api.nodes(kube, selector, self._replace_nodes, self._put_node, cluster.drop_node),
            "resourcequotas": api.quotas(kube, cluster.quotas.replace, cluster.quotas.put, cluster.quotas.drop),
        }

    async def follow(self) -> None:
        """Keep in step until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors.values():
                group.create_task(reflector.run())

    async def synced(self) -> None:
        """Wait for the first lists."""
        for reflector in self.reflectors.values():
            await reflector.synced.wait()

    def _replace_nodes(self, nodes: list[Object]) -> None:
        self.cluster.replace_nodes(nodes)
        for node in nodes:
            self._service.observe_lock(node)

    def _put_node(self, node: Object) -> None:
        self.cluster.put_node(node)
        self._service.observe_lock(node)


class Service:
    """One life of the scheduler: what it knows, what it serves, what it keeps doing."""

    def __init__(self, config: Config, kube: Kube, devices: DeviceConfigFile, registry: CollectorRegistry) -> None:
        """Wire everything together; nothing happens before `start`."""
        self.config = config
        self.kube = kube
        self._devices = devices
        self._registry = registry
        self._problems = Problems(registry)
        self._refused = Refused(registry)
        self._woken = woken_pods(registry)
        self._leadership = Leadership(config.hostname)
        self._api = api.KubeApi(kube, config.scheduler_name or NAME, _now)
        self._locks = NodeLocks(self._api, _now, timedelta(seconds=config.node_lock_timeout_seconds))
        self._lease = self._follow_lease() if config.must_lead else None
        self._view = self._view_of(devices.config)
        settings = Settings(config.policies, config.prioritizes, config.lock_wait_seconds, config.wire_version)
        clock = Clock(_now, time.monotonic)
        self._extender = Extender(
            self._cluster, self._api, self._locks, clock, settings, self._blocked, self._refused.count
        )
        observed = Observed(self._watch_ages, lambda: self._api.events_lost, lambda: self._extender.sampled_filters)
        limit = {"always": math.inf, "never": -1, "auto": DEVICE_SERIES_LIMIT}[config.device_metrics]
        registry.register(
            ClusterCollector(
                lambda: self._cluster, observed, has_legacy_names=config.has_legacy_metrics, device_limit=limit
            )
        )
        registry.register(devices)

    @property
    def _cluster(self) -> Cluster:
        return self._view.cluster

    async def start(self, stack: AsyncExitStack) -> tuple[int, int | None]:
        """Listen, and return the ports of the extender and, if any, the metrics; all drain when *stack* closes."""
        config = self.config
        app = application(
            NAME, __version__, ready=self._unsynced, registry=self._registry, max_body_bytes=BODY_LIMIT_BYTES
        )
        add_routes(app, self._extender, Verbs(self._registry).observe)
        tls = FileCertificate(config.cert_file, config.key_file) if config.cert_file else None
        server = await serve(app, config.http_bind, tls, flag="--http_bind")
        stack.push_async_callback(server.close)
        logger.info("Serving kube-scheduler", address=config.http_bind, port=server.port)
        metrics_port = await self._serve_metrics(stack)
        await self._serve_explanations(stack)
        return server.port, metrics_port

    async def _serve_metrics(self, stack: AsyncExitStack) -> int | None:
        """Listen for Prometheus, and return the port; None where the extender's listener is to be scraped."""
        address = self.config.metrics_bind_address
        if not address:
            return None
        app = application(NAME, __version__, ready=self._unsynced, registry=self._registry)
        server = await serve(app, address, flag="--metrics-bind-address")
        stack.push_async_callback(server.close)
        logger.info("Serving metrics", address=address, port=server.port)
        return server.port

    async def _serve_explanations(self, stack: AsyncExitStack) -> None:
        """Listen for people; that an address is taken keeps nobody from being scheduled."""
        address = self.config.explain_bind_address
        if not address:
            return
        explainer = Explainer(
            lambda: self._cluster,
            self._api.read_pod,
            self._extender.asked_about,
            self.config.policies,
            self._blocked,
            lambda: left_out(self.config, self._devices.config),
        )
        app = application(NAME, __version__, ready=self._unsynced, registry=self._registry)
        add_explanations(app, explainer, self._settings)
        try:
            server = await serve(app, address, flag="--explain-bind-address")
        except ServeError as error:
            logger.warning("Explanations are not served", reason=str(error))
            return
        stack.push_async_callback(server.close)
        self.explain_port = server.port
        logger.info("Serving explanations", address=address, port=server.port)

    def _settings(self) -> dict[str, str]:
        """Return what a snapshot needs beside objects."""
        policies = self.config.policies
        return {
            DEVICE_CONFIG_KEY: self._devices.text,
            NODE_POLICY_KEY: policies.node,
            DEVICE_POLICY_KEY: policies.device,
        }

    def actors(self) -> list[Coroutine[Any, Any, None]]:
        """Return what runs until the process ends, one coroutine each."""
        return [
            self._follow(),
            *([self._lease.run()] if self._lease else []),
            self._api.write_events(),
            _every(EXPIRY_SECONDS, self._expire),
            _every(RECOUNT_SECONDS, self._recount),
            self._wake_overlooked(),
            self._keep_collector_short(),
        ]

    async def _follow(self) -> None:
        """Follow the cluster until cancelled; with a new device config from new lists, while the old view decides."""
        async with asyncio.TaskGroup() as group:
            following = group.create_task(self._view.follow())
            async for devices in self._devices.changes(DEVICE_CONFIG_SECONDS):
                fresh = self._view_of(devices)
                follows_fresh = group.create_task(fresh.follow())
                await fresh.synced()
                fresh.cluster.take_over(self._cluster, time.monotonic())
                self._extender.use(fresh.cluster)
                self._view = fresh
                following.cancel()
                following = follows_fresh
                logger.info("Deciding by the new device config", hash=self._devices.digest)

    def _view_of(self, devices: DeviceConfig) -> View:
        config = self.config
        enabled = devices.enabled(has_ascend=config.has_ascend, has_iluvatar=config.has_iluvatar)
        return View(self, vendor_frames(enabled))

    def _follow_lease(self) -> Reflector:
        return api.lease(
            self.kube,
            self.config.lease_namespace,
            self.config.lease_name,
            self._replace_leases,
            self._put_lease,
            lambda _: self._leadership.drop(),
        )

    @property
    def _reflectors(self) -> dict[str, Reflector]:
        return {**self._view.reflectors, **({"leases": self._lease} if self._lease else {})}

    def observe_lock(self, node: Object) -> None:
        """Tell the locks what *node* says of its own."""
        metadata = node["metadata"]
        self._locks.observe(metadata["name"], metadata.get("annotations") or {})

    def _replace_leases(self, leases: list[Object]) -> None:
        for lease in leases:
            self._put_lease(lease)

    def _put_lease(self, lease: Object) -> None:
        self._leadership.put(lease, time.monotonic())

    def _unsynced(self) -> str | None:
        """
        Return why this replica could not decide even if it led, None if it could.

        That is what ready means: a rolling update ends the replica with the Lease only when the next one is ready.
        """
        waiting = [name for name, reflector in self._reflectors.items() if not reflector.synced.is_set()]
        return f"the first list of {', '.join(waiting)} has not arrived from the API server" if waiting else None

    def _blocked(self) -> str | None:
        """Return why nothing can be decided now, None when all is known and it is ours to decide."""
        unsynced = self._unsynced()
        if unsynced:
            return unsynced
        if self.config.must_lead and not self._leadership.is_leader(time.monotonic()):
            return f"the kube-scheduler on {self.config.hostname} does not hold the lease {self.config.lease_name}"
        return None

    def report(self, kind: str, name: str, problem: Problem) -> None:
        """Count and log a part of an object that cannot be used."""
        self._problems.count(kind, problem.key)
        logger.warning(
            "Part of an object is not as it should be", kind=kind, name=name, key=problem.key, reason=problem.reason
        )

    async def _wake_overlooked(self) -> None:
        """Look for overlooked Pods until cancelled, while decisions are ours to make."""
        while True:
            await asyncio.sleep(WAKE_SECONDS)
            if self._blocked() is None and await self._extender.wake_overlooked():
                self._woken.inc()

    async def _keep_collector_short(self) -> None:
        """Take what the first lists made out of the garbage collector's sight: most of it stays for good."""
        await self._view.synced()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_COLLECTED_AT)

    def _expire(self) -> None:
        for uid in self._cluster.expire(time.monotonic()):
            logger.info("Reservation expired, no bind came", uid=uid)

    def _recount(self) -> None:
        drift = self._cluster.recount()
        if drift:
            logger.error("The ledger had drifted and was repaired; this is a bug", numbers=drift)

    def _watch_ages(self) -> dict[str, tuple[float, int]]:
        return {name: (found.age_seconds(), found.restarts) for name, found in self._reflectors.items()}


async def _every(seconds: float, act: Callable[[], None]) -> None:
    while True:
        await asyncio.sleep(seconds)
        act()


def _now() -> datetime:
    return datetime.now(UTC)
