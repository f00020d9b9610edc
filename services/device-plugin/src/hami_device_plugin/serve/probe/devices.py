"""
Find the devices that the Node has, and make its GPUs ready for MIG if it is in that mode.

Neighbours: `adapters.nvml` reads, `decide` says what is offered, `serve.mig` has the instances, `health_loop` follows
the devices that were found.
"""

from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import structlog

from hami_device_plugin.adapters.nvml.devices import Discovery, discover, driver_load
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.health.record import decode_faults
from hami_device_plugin.decide.inventory import (
    MIG,
    FoundDevice,
    inventory,
    is_instance,
    missing_devices,
    with_health,
    without_reserve,
)
from hami_device_plugin.decide.mig.offer import with_offers
from hami_device_plugin.decide.replicas import limits
from hami_device_plugin.serve.context import Conditions, Context
from hami_device_plugin.serve.mig.instances import MigInstances, Realize, open_instances
from hami_device_plugin.serve.mig.static import Offered, offered_devices, realized
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.wire import keys
from hamicommon.wire.errors import DecodeError
from hamicommon.wire.node_devices import decode_node_devices

logger = structlog.get_logger()


class DevicesError(HamiError):
    """There is no device to offer, or nobody would take the list of them."""


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """The devices of the Node when the session began."""

    offered: Offered
    discovery: Discovery
    missing: tuple[Device, ...]
    """Those of the last inventory that cannot be read."""
    mig: MigInstances | None = field(default=None, compare=False)
    """The instances of a Node in mode `mig`."""
    leaves_reserve: bool = False
    """Whether the memory that the driver keeps for itself is left out."""

    def inventory(self, found: Iterable[FoundDevice], config: Config) -> tuple[Device, ...]:
        """Return what *found* offers by *config*; in mode `mig` the GPUs that are ready, with their profiles."""
        devices = inventory(self._shared(found), config.sharing)
        return devices if self.mig is None else with_offers(devices, self.mig.offers)

    def by(self, config: Config, conditions: Conditions) -> tuple[Device, ...]:
        """Return the devices to offer by *config*, by index, each with its health by *conditions*."""
        found = self.inventory(self.offered.found, config)
        devices = sorted((*found, *self.missing), key=lambda device: device.index)
        return with_health(devices, frozenset(uuid for uuid, known in conditions.items() if not known.is_healthy))

    def memory_bytes(self) -> dict[str, int]:
        """Return how much of each device can be shared, by UUID, where that is known."""
        found = self._shared(self.offered.found)
        return {device.uuid: device.memory_bytes for device in found if device.memory_bytes is not None}

    def _shared(self, found: Iterable[FoundDevice]) -> Iterable[FoundDevice]:
        return without_reserve(found) if self.leaves_reserve else found

    def instances(self, devices: Iterable[Device]) -> Realize | None:
        """Return what makes MIG instances of a container's shares of *devices*; None if they are no instances."""
        if self.mig is not None:
            return self.mig.realized
        return realized if any(is_instance(device.id) for device in devices) else None


async def find_devices(context: Context, stack: AsyncExitStack) -> NodeDevices:
    """
    Return the devices of the Node; *stack* closes what a Node in mode `mig` holds.

    Raises:
        NvmlError: the driver cannot say how many it has.
        HamiError: there is no device to offer, or the devices do not suit the settings.
    """
    config = context.config
    devices = await _read_devices(context)
    if config.sharing.mode == MIG:
        mig = stack.enter_context(open_instances(context))
        devices = replace(devices, mig=mig)
        await _prepare_mig(context, devices, mig)
    offered = devices.by(config, context.conditions)
    problems = tuple(limits.problems(offered, config.sharing))
    if problems:
        raise DevicesError("; ".join(problems))
    if not offered and not devices.offered.by_resource:
        shown = len(devices.offered.found) + len(devices.discovery.unread)
        raise DevicesError(f"no device to offer: the driver shows {shown}, all filtered, unreadable or without memory")
    context.metrics.show_devices(offered)
    return devices


async def _read_devices(context: Context) -> NodeDevices:
    """Return the devices, and restore their faults and the missing ones from the Node's annotations."""
    config, conditions, annotations = context.config, context.conditions, context.view.annotations
    discovery = await discover(context.nvml)
    offered = await offered_devices(context.nvml, config, discovery.found)
    load = await driver_load(context.nvml)
    recorded = decode_faults(annotations.get(keys.DEVICE_FAULTS, ""), datetime.now(UTC))
    for uuid, condition in recorded.items():
        conditions.setdefault(uuid, condition)
    uuids = {device.uuid for device in offered.found}
    faulty = {uuid for uuid, known in conditions.items() if any(fault.load == load for fault in known.faults.values())}
    known = _last_inventory(annotations.get(context.vendor.register_key, "[]"))
    missing = missing_devices(known, uuids, discovery.unread, faulty, config.sharing)
    for device in missing:
        logger.warning("A device of the inventory cannot be read", device=device.id, index=device.index)
    for index in set(discovery.unread) - {device.index for device in missing}:
        logger.error("An unknown device cannot be read", index=index, because=discovery.unread[index])
    for uuid in set(conditions) - uuids - {device.id for device in missing}:
        del conditions[uuid]
    if not config.health.is_on:
        logger.info("Health is not watched: DP_DISABLE_HEALTHCHECKS switches it off")
    return NodeDevices(offered, discovery, missing)


async def _prepare_mig(context: Context, devices: NodeDevices, mig: MigInstances) -> None:
    """Make the GPUs ready; which of them are idle is known once all Pods are."""
    await context.view.pod_reflector.synced.wait()
    await mig.prepare()
    found = devices.offered.found
    if not devices.inventory(found, context.config):
        reasons = "; ".join(mig.problems.values()) or f"the driver shows {len(found)}, all filtered"
        await context.view.send_reports()
        raise DevicesError(f"no device to offer in mode mig: {reasons}")


def _last_inventory(text: str) -> Sequence[Device]:
    try:
        return tuple(decode_node_devices(text))
    except DecodeError:
        return ()
