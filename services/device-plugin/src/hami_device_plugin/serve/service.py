"""
Serve one Node: answer the kubelet, and keep kubelet, scheduler and host up to date.

Begins when probing has found how the Node works. Everything that changes while it serves is the offered devices, their
health, and the settings that `adopt` takes.
Neighbours: `session` starts it, `calls` answers, `health_loop` follows the devices, `kubelet_loop` and `node_loop` keep
the kubelet and the Node up to date.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from hami_device_plugin.adapters.kubelet import PluginServer
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.health.lost_replicas import owned_devices, with_lost
from hami_device_plugin.decide.probe.enforcement import DRIVER
from hami_device_plugin.decide.probe.mode import AUTO
from hami_device_plugin.decide.replicas.ids import Replica, replicas
from hami_device_plugin.serve.allocate.calls import Calls, grant_policy
from hami_device_plugin.serve.allocate.instance_resource import InstanceResource
from hami_device_plugin.serve.allocate.premade_directories import PremadeDirectories
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.health.health_loop import HealthLoop
from hami_device_plugin.serve.kubelet_loop import KubeletLoop
from hami_device_plugin.serve.limit_loop import LimitLoop
from hami_device_plugin.serve.node_loop import NodeLoop
from hami_device_plugin.serve.probe.devices import NodeDevices
from hami_device_plugin.serve.probe.driver import Driver
from hami_device_plugin.serve.probe.findings import Findings
from hami_device_plugin.serve.probe.link_loop import LinkLoop
from hamicommon.errors import HamiError
from hamicommon.model import Device

LOOK_SECONDS = 30.0
LISTEN_SECONDS = 2.0
"""How long the first announcement waits for the kubelet, which listens right after the registration."""


class Service:
    """What one session serves."""

    def __init__(
        self, context: Context, driver: Driver, devices: NodeDevices, found: Findings, end: Callable[[str], None]
    ) -> None:
        """
        Serve *devices* as probing *found* that the Node works, once started.

        Raises:
            HamiError: the settings require what the Node does not have.
        """
        self._context = context
        self._config = context.config
        self._view = context.view
        self._found = found
        self._devices = devices
        self._end = end
        self._has_heard = asyncio.Event()
        """Set once the kubelet has listened."""
        self._offered = devices.by(context.config, context.conditions)
        self._health = HealthLoop(context, driver, devices, self._offer)
        self._links = LinkLoop(context.nvml, context.view, self._to_rate)
        self._calls = Calls(context, devices, found, self._links)
        self._node_loop = NodeLoop(context, found, self._calls, self._links)
        socket = self._config.socket(self._config.resource)
        self._server = PluginServer(socket, self._calls, self._replicas(), self._kubelet_changed)
        self._kubelet_loop = KubeletLoop(
            self._config.kubelet_socket, self._config.resource, self._server, context.metrics
        )

    async def start(self) -> None:
        """
        Read each device once, and let the kubelet call.

        Raises:
            HamiError: the driver is gone, or the socket cannot be created.
        """
        await self._health.look()
        await self._server.start()

    async def run(self) -> str:
        """Follow the devices until a new session is needed, and return why."""
        return await self._health.run()

    def loops(self) -> Iterator[Coroutine[Any, Any, None]]:
        """
        Yield everything that goes on while the kubelet is served.

        Raises:
            HamiError: the settings require what the Node does not have.
        """
        yield self._reconcile()
        if self._found.mode.is_identity and self._devices.mig is None:
            yield PremadeDirectories(self._context, self._calls.gets_library).run()
        yield self._node_loop.keep_library()
        yield self._node_loop.keep_directories()
        yield self._watch_node()
        if not (self._found.enforcement.is_final and self._found.enforcement.is_compute_final):
            change = self._found.search.wait_change(self._found.enforcement)
            yield self._end_after(change, "enforcement")
        if self._found.enforcement.by == DRIVER:
            yield LimitLoop(self._context, self._calls.limits).run()
        yield self._calls.keep_namespaces()
        yield self._links.run()
        yield self._found.driver_cdi.keep(lambda: [device.id for device in self._offered], self._end)
        yield self._found.driver_cdi.check()
        policy = grant_policy(self._config, self._devices.offered.found, self._found.driver_cdi.strategy)
        for resource, instances in self._devices.offered.by_resource:
            served = InstanceResource(self._context, resource, instances, policy, self._found)
            yield self._end_after(served.run(lambda: self._view.node), "kubelet")
        if self._config.kubelet_socket:
            registered = self._kubelet_loop.run(
                lambda: self._view.node, lambda: sum(one.healthy for one in self._offered)
            )
            yield self._end_after(registered, "kubelet")

    def not_ready(self) -> str | None:
        """Return why the kubelet cannot hand out devices; None if it can."""
        return self._kubelet_loop.problem() if self._config.kubelet_socket else None

    def status(self) -> str:
        """Return how devices reach containers, and who limits their memory."""
        return f"{self._found.driver_cdi.status()}\nmemory is limited by {self._found.enforcement}"

    def devices(self, config: Config) -> tuple[Device, ...]:
        """Return the devices to offer by *config*."""
        return self._health.devices(config)

    def adopt(self, config: Config) -> bool:
        """
        Continue with *config* and return True; False if that needs a new session.

        A new session is needed if `session_settings` differ, and if no device would be left. The kubelet notices
        nothing but other replicas.
        """
        devices = self.devices(config)
        if config.session_settings != self._config.session_settings or not devices:
            return False
        try:
            self._calls.adopt(config, devices)
        except HamiError:
            return False
        self._node_loop.adopt(config)
        self._health.adopt(config)
        self._config = config
        self._offer()
        return True

    async def withdraw(self) -> None:
        """Stop for good; the scheduler knows first, because a Pod fails at a kubelet without a plugin."""
        await self._node_loop.withdraw()
        await self.stop()

    async def stop(self) -> None:
        """Finish the kubelet's calls, and take no more."""
        await self._server.stop()

    async def _reconcile(self) -> None:
        """Keep the Node up to date, once the kubelet listens or is late."""
        if self._config.kubelet_socket:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_heard.wait(), LISTEN_SECONDS)
        await self._node_loop.reconcile(self._announced, self._health.annotations)

    def _kubelet_changed(self) -> None:
        """Announce what follows from the kubelet's beginning or ceasing to listen."""
        self._has_heard.set()
        self._view.to_announce.set()

    def _announced(self) -> tuple[Device, ...]:
        """Return the devices as the scheduler may use them: a kubelet that does not listen fails every Pod."""
        if not self._config.kubelet_socket or self._server.open_streams > 0:
            return self._offered
        return tuple(replace(device, healthy=False) for device in self._offered)

    async def _end_after(self, work: Awaitable[None], cause: str) -> None:
        """
        End the session for *cause* when *work* returns.

        Registrations return once the kubelet has restarted, and the search once others limit containers than was found.
        """
        await work
        self._end(cause)

    async def _watch_node(self) -> None:
        """End the session when the mode may be another one; spell replicas again that no Pod has any more."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._config.allocation == AUTO and await self._found.chosen.may_change(self._context):
                self._end("node")
            self._server.offer(self._replicas())

    def _offer(self) -> None:
        """Offer the devices as they are now to the kubelet and in the Node's annotation."""
        self._offered = self.devices(self._config)
        self._context.metrics.show_devices(self._offered)
        self._view.to_announce.set()
        self._server.offer(self._replicas())

    def _replicas(self) -> tuple[Replica, ...]:
        """Return the kubelet's list of the devices offered."""
        entries = self._context.checkpoint.of(self._config.resource)
        in_use = frozenset(replica for entry in entries for replica in entry.replicas)
        listed = replicas(self._offered, self._config.sharing, in_use)
        lost = {device.id for device in self._offered if not device.healthy}
        if not lost or len(lost) == len(self._offered):
            return listed
        vendor = self._context.vendor
        return with_lost(listed, lost, owned_devices(entries, self._view.pods, self._config.node_name, vendor))

    def _to_rate(self) -> list[str]:
        """Return the UUIDs of the devices whose links matter: the healthy ones, if the settings use the scores."""
        return [device.id for device in self._offered if device.healthy] if self._config.rates_links else []
