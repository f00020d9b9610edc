"""
Serve the MIG instances that an administrator created, by `--mig-strategy`.

Under `single` the instances take the place of the GPUs in the Node's inventory. Under `mixed` each size is a resource
of its own, which the kubelet alone counts: the replica IDs are the instances, so no Pod annotation is read.
Neighbours: `decide.mig.static` says what is offered, `session` serves the usual resource.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import structlog

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.checkpoint import FILE_NAME, CheckpointError, read_checkpoint
from hami_device_plugin.adapters.kubelet import Handlers, PluginServer
from hami_device_plugin.adapters.nvml.devices import driver_load
from hami_device_plugin.adapters.nvml.health import HealthReader
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocation import Grant, GrantPolicy
from hami_device_plugin.decide.cards.condition import Condition, observe
from hami_device_plugin.decide.cdi import spec as cdi
from hami_device_plugin.decide.cdi.driver import DriverSpec
from hami_device_plugin.decide.inventory import FoundDevice
from hami_device_plugin.decide.mig.grant import instance_grant
from hami_device_plugin.decide.mig.static import NONE, MigDevice, StaticOffer, static_offer
from hami_device_plugin.decide.owner import OwnerError, owner
from hami_device_plugin.decide.pods import Pod
from hami_device_plugin.decide.replicas.ids import Replica
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hami_device_plugin.metrics import Metrics
from hami_device_plugin.serve.kubelet_loop import KubeletLoop
from hami_device_plugin.serve.mig.locate import InstanceLocator
from hamicommon.model import ContainerShares
from hamicommon.runtime.host.nvml import Nvml, NvmlError

HEALTH_SECONDS = 2.0

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Offered:
    """What the Node offers by its strategy."""

    found: tuple[FoundDevice, ...]
    """Under the usual resource: GPUs, or under `single` instances."""
    by_resource: tuple[tuple[str, tuple[MigDevice, ...]], ...] = ()


async def offered_devices(nvml: Nvml, config: Config, found: Sequence[FoundDevice]) -> Offered:
    """
    Return what the Node offers of the GPUs *found*.

    Raises:
        NvmlError: the driver does not answer.
        StrategyError: the instances do not suit the strategy.
    """
    if config.mig_strategy == NONE:
        return Offered(tuple(found))
    driver = MigNvml(nvml)
    sharing = config.sharing
    offer = static_offer(
        config.mig_strategy,
        await driver.read_gpus(),
        await driver.read_devices(),
        sharing.excluded_uuids,
        sharing.excluded_indices,
    )
    for warning in offer.warnings:
        _warn(warning)
    return Offered(_usual(offer, found), offer.by_resource)


async def granted_instances(_pod: Pod, _container: str, shares: ContainerShares) -> tuple[str, ...]:
    """Return the UUIDs of *shares*, each of which is a whole instance."""
    return tuple(share.uuid for share in shares)


class InstanceResource:
    """One resource of `mixed`: its server, and its answers to the kubelet."""

    def __init__(
        self,
        resource: str,
        devices: Sequence[MigDevice],
        config: Config,
        *,
        nvml: Nvml,
        policy: GrantPolicy,
        locator: InstanceLocator,
        driver: Callable[[Sequence[str]], Awaitable[DriverSpec | None]],
        is_identity: bool,
        metrics: Metrics,
    ) -> None:
        """
        Offer *devices* as *resource*; *is_identity* says whether the runtime resolves CDI names.

        *driver* returns the driver's part for some devices, None if NVIDIA's runtime adds it.
        """
        self._nvml = nvml
        self._driver = driver
        self._locator = locator
        self._resource = resource
        self._config = config
        self._policy = policy
        self._is_identity = is_identity
        self._server = PluginServer(
            config.socket(resource),
            Handlers(allocate=self._allocate, preferred=_no_preference, pre_start=self._pre_start),
            [Replica(device.uuid, is_healthy=True) for device in devices],
        )
        self._conditions = {device.uuid: Condition() for device in devices}
        self._healthy = frozenset(self._conditions)
        self._loop = KubeletLoop(config.kubelet_socket, resource, self._server, metrics)

    async def run(self, node: Callable[[], Mapping[str, Any]]) -> None:
        """Serve until the kubelet restarts, or until cancelled."""
        await self._server.start()
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(self._watch_health())
            try:
                if self._config.kubelet_socket:
                    await self._loop.run(node, lambda: len(self._healthy))
                else:
                    await watching
            finally:
                watching.cancel()
                await asyncio.shield(self._server.stop())

    async def _watch_health(self) -> None:
        """Offer each instance by its health, until cancelled; none is healthy while the driver does not answer."""
        reader = HealthReader(self._nvml, is_complete=self._config.health.is_on)
        while True:
            try:
                load = await driver_load(self._nvml)
                for uuid, before in self._conditions.items():
                    reading = await reader.read(uuid)
                    self._conditions[uuid] = observe(before, reading, self._config.health, datetime.now(UTC), load)
            except NvmlError:
                self._offer(frozenset())
            else:
                self._offer(frozenset(uuid for uuid, known in self._conditions.items() if known.is_healthy))
            await asyncio.sleep(HEALTH_SECONDS)

    def _offer(self, healthy: frozenset[str]) -> None:
        if healthy != self._healthy:
            unhealthy = {uuid: known.reason() for uuid, known in self._conditions.items() if uuid not in healthy}
            logger.warning("The health of MIG instances changed", resource=self._resource, unhealthy=unhealthy)
        self._healthy = healthy
        self._server.offer([Replica(uuid, is_healthy=uuid in healthy) for uuid in self._conditions])

    async def _allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Grant]:
        if not self._is_identity:
            return tuple([await self._grant(request) for request in requests])
        return tuple(cdi.answer(cdi.new_device(), self._policy) for _ in requests)

    async def _grant(self, uuids: Sequence[str]) -> Grant:
        return instance_grant(await self._locator.granted(uuids, self._policy), self._policy)

    async def _pre_start(self, replicas: frozenset[str]) -> None:
        try:
            entries = await asyncio.to_thread(read_checkpoint, self._config.plugin_directory / FILE_NAME)
            found = owner(replicas, self._resource, entries)
        except (CheckpointError, OwnerError):
            if self._is_identity:
                raise
            # Under the lock Allocate gave the container everything.
            return
        driver = await self._driver(sorted(replicas)) or DriverSpec()
        edits = driver.common + cdi.grant_edits(await self._grant(sorted(replicas)))
        for _, device in found.devices:
            if device:
                root, content = Path(self._config.cdi_root), cdi.spec(device, edits, driver.version)
                await asyncio.to_thread(cdi_files.write_spec, root, found.pod_uid, device, content)


@lru_cache(maxsize=64)
def _warn(problem: str) -> None:
    """Log *problem* once in the life of the process, however often the devices are read."""
    logger.warning("MIG instances are not all offered", problem=problem)


async def _no_preference(requests: Sequence[PreferredRequest]) -> Sequence[Sequence[str] | None]:
    return [None] * len(requests)


def _usual(offer: StaticOffer, found: Sequence[FoundDevice]) -> tuple[FoundDevice, ...]:
    parents = {device.uuid: device for device in found}
    instances = [
        FoundDevice(
            uuid=device.uuid,
            index=index,
            name=device.name,
            memory_bytes=device.memory_mib * 2**20,
            numa=parents[device.gpu_uuid].numa,
            minor=parents[device.gpu_uuid].minor,
        )
        for index, device in enumerate(offer.usual)
        if device.gpu_uuid in parents
    ]
    return (*(device for device in found if device.uuid in offer.gpu_uuids), *instances)
