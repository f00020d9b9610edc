"""
Serve one Node: answer the kubelet, and keep kubelet, scheduler and host up to date.

Begins when probing has found how the Node works. Everything that changes while it serves is the offered devices, their
health, and the settings that `adopt` takes.
Neighbours: `session` starts it, `replica_plugin` or `dra` is the kubelet's side, by the Node's kind, `health_loop`
follows the devices, `node_loop` keeps the Node up to date.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Protocol

from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocate.pods import Sharing, sharing_containers
from hami_device_plugin.decide.probe.enforcement import DRIVER
from hami_device_plugin.decide.probe.mode import AUTO
from hami_device_plugin.serve.allocate.calls import Calls
from hami_device_plugin.serve.allocate.premade_directories import PremadeDirectories
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.dra.driver import DraDriver
from hami_device_plugin.serve.health.health_loop import HealthLoop
from hami_device_plugin.serve.limit_loop import LimitLoop
from hami_device_plugin.serve.node_loop import NodeLoop
from hami_device_plugin.serve.probe.devices import NodeDevices
from hami_device_plugin.serve.probe.driver import Driver
from hami_device_plugin.serve.probe.findings import Findings
from hami_device_plugin.serve.probe.link_loop import LinkLoop
from hami_device_plugin.serve.replica_plugin import ReplicaPlugin
from hamicommon.dra.names import DRA, KINDS
from hamicommon.errors import HamiError
from hamicommon.model import Device
from hamicommon.pod.reading import Pod

LOOK_SECONDS = 30.0
LISTEN_SECONDS = 2.0
"""How long the first announcement waits for the kubelet, which listens right after the registration."""


class KubeletSide(Protocol):
    """How devices reach the kubelet on a Node of one kind."""

    @property
    def is_registering(self) -> bool:
        """Whether the kubelet is to listen."""

    async def start(self) -> None:
        """Let the kubelet call. Raises: HamiError."""

    async def stop(self) -> None:
        """Finish the kubelet's calls, and take no more."""

    def offer(self, devices: Sequence[Device], config: Config) -> None:
        """Offer *devices* by *config*."""

    def announced(self, devices: Sequence[Device]) -> tuple[Device, ...]:
        """Return *devices* as HAMi's scheduler may use them."""

    def sharing(self, pods: Iterable[Pod]) -> Iterator[Sharing]:
        """Yield each container of *pods* that has its shares without HAMi's annotation."""

    def problem(self) -> str | None:
        """Return why the kubelet does not hand out devices; None if it does."""

    def loops(self) -> Iterator[Coroutine[Any, Any, None]]:
        """Yield what goes on while the kubelet is served; each returns once a new session is needed."""


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
        calls, changed = self._calls, self._kubelet_changed
        self._kubelet: KubeletSide = (
            DraDriver(context, devices, lambda: calls.preparer, calls.prepare_containers, changed)
            if self._config.node_kind == DRA
            else ReplicaPlugin(context, devices, found, calls, changed)
        )
        for kind in KINDS:
            context.metrics.node_kind.labels(kind).set(kind == self._config.node_kind)

    async def start(self) -> None:
        """
        Read each device once, and let the kubelet call.

        Raises:
            HamiError: the driver is gone, or the socket cannot be created.
        """
        await self._health.look()
        await self._kubelet.start()

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
        is_dra = self._config.node_kind == DRA
        if self._found.mode.is_identity and self._devices.mig is None and not is_dra:
            yield PremadeDirectories(self._context, self._calls.gets_library).run()
        yield self._node_loop.keep_library()
        yield self._node_loop.keep_directories()
        yield self._watch_node()
        if not (self._found.enforcement.is_final and self._found.enforcement.is_compute_final):
            change = self._found.search.wait_change(self._found.enforcement)
            yield self._end_after(change, "enforcement")
        if self._found.enforcement.by == DRIVER:
            yield LimitLoop(self._context, self._sharing, self._calls.limits).run()
        yield self._calls.keep_namespaces()
        yield self._links.run()
        yield self._found.driver_cdi.keep(lambda: [device.id for device in self._offered], self._end)
        yield self._found.driver_cdi.check()
        for loop in self._kubelet.loops():
            yield self._end_after(loop, "kubelet")

    def not_ready(self) -> str | None:
        """Return why the kubelet cannot hand out devices; None if it can."""
        return self._kubelet.problem()

    def status(self) -> str:
        """Return the Node's kind, how devices reach containers, and who limits their memory."""
        kind = f"this is a Node of kind {self._config.node_kind}"
        return f"{kind}\n{self._found.driver_cdi.status()}\nmemory is limited by {self._found.enforcement}"

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
        await self._kubelet.stop()

    async def _reconcile(self) -> None:
        """Keep the Node up to date, once the kubelet listens or is late."""
        if self._kubelet.is_registering:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._has_heard.wait(), LISTEN_SECONDS)
        await self._node_loop.reconcile(self._announced, self._health.annotations)

    def _kubelet_changed(self) -> None:
        """Announce what follows from the kubelet's beginning or ceasing to listen."""
        self._has_heard.set()
        self._view.to_announce.set()

    def _sharing(self) -> Iterator[Sharing]:
        """Yield each container of the Node with shares."""
        pods = self._view.pods.values()
        yield from sharing_containers(pods, self._config.node_name, self._context.vendor)
        yield from self._kubelet.sharing(pods)

    def _announced(self) -> tuple[Device, ...]:
        """Return the devices as HAMi's scheduler may use them."""
        return self._kubelet.announced(self._offered)

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
            self._kubelet.offer(self._offered, self._config)

    def _offer(self) -> None:
        """Offer the devices as they are now to the kubelet and in the Node's annotation."""
        self._offered = self.devices(self._config)
        self._context.metrics.show_devices(self._offered)
        self._view.to_announce.set()
        self._kubelet.offer(self._offered, self._config)

    def _to_rate(self) -> list[str]:
        """Return the UUIDs of the devices whose links matter: the healthy ones, if the settings use the scores."""
        return [device.id for device in self._offered if device.healthy] if self._config.rates_links else []
