"""
Find out how the Node works: by which mode, strategy and enforcement. Its mode is how allocations find their Pod.

Neighbours: `decide.probe.mode` chooses the mode, and `service` looks again from time to time. `driver_cdi` and
`enforcement` find out the others, `session` asks once it knows the devices.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import structlog

from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.decide.announcement import Announced, announcement
from hami_device_plugin.decide.probe.enforcement import BACKENDS, LIMITERS, Enforcement, EnforcementError
from hami_device_plugin.decide.probe.mode import AUTO, IDENTITY, LOCK, Mode, cdi_problem, choose, versions
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.probe.driver_cdi import DriverCdi
from hami_device_plugin.serve.probe.enforcement import EnforcementSearch
from hamicommon.dra.names import DRA, PLUGIN
from hamicommon.errors import HamiError
from hamicommon.model import Device

POLL_SECONDS = 0.5
PROBE_SECONDS = 30.0
"""How long a starting kubelet may take to answer before the session falls back to the lock."""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class FoundMode:
    """The mode, and what it was chosen by."""

    mode: Mode
    versions: tuple[str, ...]
    """Of the runtime and the kubelet."""
    lacked: str | None
    """What identity allocation lacked; None if nothing, or if nobody asked."""
    is_cdi_named: bool
    """Whether answers under the lock name a CDI device too."""

    async def may_change(self, context: Context) -> bool:
        """Return whether the Node reports other versions, or has what identity allocation lacked."""
        if versions(context.view.node) not in ((), self.versions):
            return True
        return self.lacked is not None and await _identity_problem(context) is None


@dataclass(frozen=True, slots=True)
class Findings:
    """How a Node works; nothing is served before all of it is known."""

    chosen: FoundMode
    driver_cdi: DriverCdi
    """How devices reach containers, and the driver's part of their specs."""
    search: EnforcementSearch
    enforcement: Enforcement
    """Who limits containers, as the search found."""
    kind: str = PLUGIN
    """How devices reach the kubelet."""

    @property
    def mode(self) -> Mode:
        """How allocations find their Pod."""
        return self.chosen.mode

    @property
    def is_cdi_named(self) -> bool:
        """Whether answers under the lock name a CDI device too."""
        return self.chosen.is_cdi_named

    def announced(self, devices: Sequence[Device]) -> Announced:
        """Return what the Node's annotations say of *devices*."""
        strategy = str(self.driver_cdi.strategy)
        return Announced(tuple(devices), self.mode.is_identity, strategy, str(self.enforcement), self.kind)


async def find_mode(context: Context) -> FoundMode:
    """Return the mode of the Node by its settings, its versions and what works there."""
    node = context.view.node
    # Claims need CDI, and no word of the kubelet about replicas.
    allocation = IDENTITY if context.config.node_kind == DRA else context.config.allocation
    problem, lacked = None, None
    if allocation in (AUTO, LOCK):
        node = await context.view.wait_node(lambda node: bool(versions(node)))
    if allocation == AUTO:
        problem = await _lasting_identity_problem(context)
    elif allocation == LOCK:
        lacked = cdi_problem(node) or await _identity_problem(context)
        logger.info("Variables of a Pod", hold="the grant's" if lacked is None else f"win: {lacked}")
    mode = choose(allocation, node, problem)
    logger.info("Allocations find their Pod", by=mode.name, because=mode.reason)
    for name in (IDENTITY, LOCK):
        context.metrics.mode.labels(name).set(mode.name == name)
    return FoundMode(mode, versions(node), problem, allocation == LOCK and lacked is None)


async def _lasting_identity_problem(context: Context) -> str | None:
    """
    Return why identity allocation cannot work here, as far as a probe shows; None if it can.

    A kubelet that is starting gets time to answer, so that the mode does not depend on which process started first.
    """
    deadline = time.monotonic() + PROBE_SECONDS
    while True:
        problem = await _identity_problem(context)
        if problem is None or time.monotonic() > deadline:
            return problem
        await asyncio.sleep(POLL_SECONDS)


async def _identity_problem(context: Context) -> str | None:
    """Return what identity allocation lacks at this moment; None if it has all."""
    try:
        await context.resources.listed()
        await asyncio.to_thread(context.checkpoint.entries)
        await asyncio.to_thread(Path(context.config.cdi_root).mkdir, parents=True, exist_ok=True)
    except (HamiError, OSError) as error:
        return str(error)
    return None


async def probe(context: Context, devices: Sequence[Device]) -> Findings:
    """
    Return how the Node works with *devices*.

    Raises:
        StrategyError: the configured strategy does not work here.
        EnforcementError: the driver must limit memory, and cannot. The scheduler is told that no device can be used.
    """
    uuids, kind = [device.id for device in devices], context.config.node_kind
    chosen = await find_mode(context)
    capabilities = MigNvml(context.nvml).capabilities
    driver_cdi = DriverCdi(context.config, context.view, context.metrics, capabilities)
    strategy = await driver_cdi.prepare(chosen.mode, uuids)
    search = EnforcementSearch(context.config, context.nvml, uuids, strategy, chosen.mode.is_identity)
    try:
        enforcement = await search.find()
    except EnforcementError as error:
        found = Findings(chosen, driver_cdi, search, Enforcement("none", str(error)), kind)
        await _withdraw(context, found.announced([replace(device, healthy=False) for device in devices]), str(error))
        raise
    _show(context, enforcement)
    return Findings(chosen, driver_cdi, search, enforcement, kind)


def _show(context: Context, found: Enforcement) -> None:
    compute = {"compute": found.compute} if found.compute else {}
    logger.info("Memory is limited", by=found.by, because=found.reason, **compute)
    for name in LIMITERS:
        context.metrics.enforcement.labels(name).set(name == found.by)
    for backend in BACKENDS:
        context.metrics.memory_backend.labels(backend).set(backend == found.backend)
    if found.compute:
        context.metrics.compute_enforcement.labels("mps").set(found.mps is not None)
        context.metrics.compute_enforcement.labels("library").set(found.mps is None)


async def _withdraw(context: Context, announced: Announced, reason: str) -> None:
    """Say in the Node's annotations that all its devices are unhealthy, and why nothing is offered."""
    view = context.view
    patch = announcement(
        announced, context.vendor, version=context.config.wire_version, carried=view.annotations, now=datetime.now(UTC)
    )
    if patch:
        await view.annotate_node(patch)
        view.report("MemoryNotEnforced", f"Nothing is offered: {reason}", is_warning=True)
        await view.send_reports()
