"""
Find out how the Node works: by which mode, strategy and enforcement.

Neighbours: `mode`, `driver_cdi` and `enforcement` find out one each, `session` asks once it knows the devices.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog

from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.decide.announcement import Announced, announcement
from hami_device_plugin.decide.probe.enforcement import LIMITERS, Enforcement, EnforcementError
from hami_device_plugin.decide.probe.mode import Mode
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.probe.driver_cdi import DriverCdi
from hami_device_plugin.serve.probe.enforcement import EnforcementSearch
from hami_device_plugin.serve.probe.mode import FoundMode, find_mode
from hamicommon.model import Device

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Findings:
    """How a Node works; nothing is served before all of it is known."""

    chosen: FoundMode
    driver_cdi: DriverCdi
    """How devices reach containers, and the driver's part of their specs."""
    search: EnforcementSearch
    enforcement: Enforcement
    """Who limits containers, as the search found."""

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
        return Announced(tuple(devices), self.mode.is_identity, strategy, str(self.enforcement))


async def probe(context: Context, devices: Sequence[Device]) -> Findings:
    """
    Return how the Node works with *devices*.

    Raises:
        StrategyError: the configured strategy does not work here.
        EnforcementError: the driver must limit memory, and cannot. The scheduler is told that no device can be used.
    """
    uuids = [device.id for device in devices]
    chosen = await find_mode(context)
    capabilities = MigNvml(context.nvml).capabilities
    driver_cdi = DriverCdi(context.config, context.view, context.metrics, capabilities)
    strategy = await driver_cdi.prepare(chosen.mode, uuids)
    search = EnforcementSearch(context.config, context.nvml, uuids, strategy, chosen.mode.is_identity)
    try:
        enforcement = await search.find()
    except EnforcementError as error:
        found = Findings(chosen, driver_cdi, search, Enforcement("none", str(error)))
        await _withdraw(context, found.announced([replace(device, healthy=False) for device in devices]), str(error))
        raise
    _show(context, enforcement)
    return Findings(chosen, driver_cdi, search, enforcement)


def _show(context: Context, found: Enforcement) -> None:
    compute = {"compute": found.compute} if found.compute else {}
    logger.info("Memory is limited", by=found.by, because=found.reason, **compute)
    for name in LIMITERS:
        context.metrics.enforcement.labels(name).set(name == found.by)
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
