"""
The kubelet's side of a Node with the DevicePlugin API: devices are offered as replicas, which the kubelet counts.

Neighbours: `adapters.kubelet` serves the socket, `kubelet_loop` stays registered, `calls` answers, `service` starts
this.
"""

from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from hami_device_plugin.adapters.kubelet import PluginServer
from hami_device_plugin.config.settings import Config
from hami_device_plugin.decide.allocate.pods import Sharing
from hami_device_plugin.decide.health.lost_replicas import owned_devices, with_lost
from hami_device_plugin.decide.replicas.ids import Replica, replicas
from hami_device_plugin.serve.allocate.calls import Calls, grant_policy
from hami_device_plugin.serve.allocate.instance_resource import InstanceResource
from hami_device_plugin.serve.context import Context
from hami_device_plugin.serve.kubelet_loop import KubeletLoop
from hami_device_plugin.serve.probe.devices import NodeDevices
from hami_device_plugin.serve.probe.findings import Findings
from hamicommon.model import Device
from hamicommon.pod.reading import Pod


class ReplicaPlugin:
    """One session's device plugin, and those of MIG instances that the kubelet alone counts."""

    def __init__(
        self, context: Context, devices: NodeDevices, found: Findings, calls: Calls, changed: Callable[[], None]
    ) -> None:
        """Serve *devices* by *calls*; *changed* is called when the kubelet begins or ceases to listen."""
        config = context.config
        self._context = context
        self._found = found
        self._node_devices = devices
        self._devices = devices.by(config, context.conditions)
        self._server = PluginServer(config.socket(config.resource), calls, self._replicas(config), changed)
        self._loop = KubeletLoop(config.kubelet_socket, config.resource, self._server, context.metrics)

    @property
    def is_registering(self) -> bool:
        """Whether the kubelet is to listen; the settings may say that it is not."""
        return bool(self._context.config.kubelet_socket)

    async def start(self) -> None:
        """Let the kubelet call. Raises: SocketError."""
        await self._server.start()

    async def stop(self) -> None:
        """Finish the kubelet's calls, and take no more."""
        await self._server.stop()

    def offer(self, devices: Sequence[Device], config: Config) -> None:
        """Offer *devices* by *config*."""
        self._devices = tuple(devices)
        self._server.offer(self._replicas(config))

    def announced(self, devices: Sequence[Device]) -> tuple[Device, ...]:
        """Return *devices* as HAMi's scheduler may use them: a kubelet that does not listen fails every Pod."""
        if not self.is_registering or self._server.open_streams > 0:
            return tuple(devices)
        return tuple(replace(device, healthy=False) for device in devices)

    def sharing(self, pods: Iterable[Pod]) -> Iterator[Sharing]:
        """Yield nothing: every share is in an annotation."""
        return iter(())

    def problem(self) -> str | None:
        """Return why the kubelet does not hand out devices; None if it does."""
        return self._loop.problem() if self.is_registering else None

    def loops(self) -> Iterator[Coroutine[Any, Any, None]]:
        """
        Yield what goes on while the kubelet is served; each returns once the kubelet has restarted.

        Raises:
            HamiError: the settings require what the Node does not have.
        """
        context, offered = self._context, self._node_devices.offered
        policy = grant_policy(context.config, offered.found, self._found.driver_cdi.strategy)
        for resource, instances in offered.by_resource:
            served = InstanceResource(context, resource, instances, policy, self._found)
            yield served.run(lambda: context.view.node)
        if self.is_registering:
            yield self._loop.run(lambda: context.view.node, lambda: sum(one.healthy for one in self._devices))

    def _replicas(self, config: Config) -> tuple[Replica, ...]:
        """Return the kubelet's list of the devices offered."""
        entries = self._context.checkpoint.of(config.resource)
        in_use = frozenset(replica for entry in entries for replica in entry.replicas)
        listed = replicas(self._devices, config.sharing, in_use)
        lost = {device.id for device in self._devices if not device.healthy}
        if not lost or len(lost) == len(self._devices):
            return listed
        vendor = self._context.vendor
        return with_lost(listed, lost, owned_devices(entries, self._context.view.pods, config.node_name, vendor))
