"""
Serve the MIG instances of one size, a resource of the strategy `mixed`.

The kubelet alone counts the resource: the replica IDs are the instances, so no Pod annotation is read.
Neighbours: `serve.mig.static` finds the instances, `service` serves the usual resource.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from hami_device_plugin.adapters import cdi_files
from hami_device_plugin.adapters.checkpoint import CheckpointError
from hami_device_plugin.adapters.kubelet import PluginServer
from hami_device_plugin.adapters.nvml.devices import driver_load
from hami_device_plugin.adapters.nvml.health import HealthReader
from hami_device_plugin.adapters.nvml.mig import MigNvml
from hami_device_plugin.decide.allocate.allocation import Grant, GrantPolicy
from hami_device_plugin.decide.allocate.cdi import spec as cdi
from hami_device_plugin.decide.allocate.cdi.driver import DriverSpec
from hami_device_plugin.decide.allocate.owner import OwnerError, owner
from hami_device_plugin.decide.health.condition import Condition, observe
from hami_device_plugin.decide.mig.grant import instance_grant
from hami_device_plugin.decide.mig.static import MigDevice
from hami_device_plugin.decide.replicas.ids import Replica
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.kubelet_loop import KubeletLoop
from hami_device_plugin.serve.probe.findings import Findings
from hamicommon.runtime.host.nvml import NvmlError

HEALTH_SECONDS = 2.0

logger = structlog.get_logger()


class InstanceResource:
    """One resource: its server, and its answers to the kubelet."""

    def __init__(
        self, context: Context, resource: str, devices: Sequence[MigDevice], policy: GrantPolicy, found: Findings
    ) -> None:
        """Offer *devices* as *resource*, as probing *found* that the Node works."""
        config = context.config
        self._nvml = context.nvml
        self._checkpoint = context.checkpoint
        self._found = found
        self._resource = resource
        self._config = config
        self._policy = policy
        self._server = PluginServer(
            config.socket(resource),
            self,
            [Replica(device.uuid, is_healthy=True) for device in devices],
        )
        self._conditions = {device.uuid: Condition() for device in devices}
        self._healthy = frozenset(self._conditions)
        self._loop = KubeletLoop(config.kubelet_socket, resource, self._server, context.metrics)

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

    async def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Grant]:
        """Answer Allocate."""
        if not self._found.mode.is_identity:
            return tuple([await self._grant(request) for request in requests])
        return tuple(cdi.answer(cdi.new_device(), self._policy) for _ in requests)

    async def _grant(self, uuids: Sequence[str]) -> Grant:
        return instance_grant(await MigNvml(self._nvml).granted(uuids, self._policy), self._policy)

    async def preferred(self, requests: Sequence[PreferredRequest]) -> Sequence[Sequence[str] | None]:
        """Answer GetPreferredAllocation: one instance is as good as another."""
        return [None] * len(requests)

    async def pre_start(self, replicas: frozenset[str]) -> None:
        """Answer PreStartContainer: write the spec of the container that has *replicas*."""
        try:
            entries = await asyncio.to_thread(self._checkpoint.read)
            found = owner(replicas, self._resource, entries)
        except (CheckpointError, OwnerError):
            if self._found.mode.is_identity:
                raise
            # Under the lock Allocate gave the container everything.
            return
        driver = await self._found.driver_cdi.part(sorted(replicas)) or DriverSpec()
        edits = driver.common + cdi.grant_edits(await self._grant(sorted(replicas)))
        for entry in found:
            if entry.device:
                root, content = Path(self._config.cdi_root), cdi.spec(entry.device, edits, driver.version)
                path = cdi_files.spec_path(root, entry.pod_uid, entry.device)
                await asyncio.to_thread(cdi_files.write_spec, path, content)
