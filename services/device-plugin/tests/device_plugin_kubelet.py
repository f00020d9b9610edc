"""
A kubelet for the tests: Registration, PodResources and the checkpoint, on sockets and files.

Tests tell it what to do around one plugin: allocate for a container, start it, restart.
"""

import asyncio
import base64
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc

from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2_grpc as api_grpc
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2_grpc as resources_grpc

RESOURCE = "nvidia.com/gpu"


@dataclass
class Granted:
    """The allocation of one container."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    replicas: tuple[str, ...]
    response: Any
    resource: str = RESOURCE
    is_listed: bool = True
    """False for ordinary init containers."""


@dataclass
class Kubelet:
    """One kubelet below *host*."""

    host: Path
    registrations: list[Any] = field(default_factory=list)
    """Those accepted, once the kubelet has the first list of their plugin's devices."""

    granted: list[Granted] = field(default_factory=list)
    devices: dict[str, str] = field(default_factory=dict)
    """Health by replica, as last sent by the plugin."""
    first_devices: dict[str, str] = field(default_factory=dict)
    """The same, as first sent after the last registration."""
    others: dict[str, dict[str, str]] = field(default_factory=dict)
    """The same for other resources, by name."""
    lists: int = 0
    refused_lists: int = 0
    """This many of the next lists are refused, as the kubelet's rate limit does."""

    refusal: str = ""
    """Why registrations are refused; empty to accept them."""

    held_lists: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared, every list waits."""

    @property
    def socket(self) -> Path:
        """The registration socket."""
        return self.host / "device-plugins/kubelet.sock"

    @property
    def pod_resources_socket(self) -> Path:
        """The PodResources socket."""
        return self.host / "pod-resources/kubelet.sock"

    @property
    def checkpoint(self) -> Path:
        """The device checkpoint."""
        return self.socket.with_name("kubelet_internal_checkpoint")

    async def __aenter__(self) -> Self:
        self._watching: asyncio.Task[None] | None = None
        self._channel: Any = None
        self._other_plugins: dict[str, tuple[Any, Any, asyncio.Task[None]]] = {}
        self.held_lists.set()
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Serve both sockets; as a kubelet does, remove all sockets that exist."""
        for folder in (self.socket.parent, self.pod_resources_socket.parent):
            folder.mkdir(parents=True, exist_ok=True)
        for path in self.socket.parent.iterdir():
            if path != self.checkpoint:
                path.unlink()
        self._server = grpc.aio.server()
        api_grpc.add_RegistrationServicer_to_server(_Registration(self), self._server)  # type: ignore[no-untyped-call]
        resources_grpc.add_PodResourcesListerServicer_to_server(  # type: ignore[no-untyped-call]
            _PodResources(self), self._server
        )
        for socket in (self.pod_resources_socket, self.socket):
            self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()

    async def stop(self) -> None:
        """Stop; the socket files stay, as after a kubelet was killed."""
        await self.disconnect()
        for channel, _, watching in self._other_plugins.values():
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await channel.close()
        self._other_plugins.clear()
        await self._server.stop(0)

    async def connect(self, registration: Any) -> None:
        """Listen to the plugin of *registration*, as a kubelet does; to those of other resources besides."""
        if registration.resource_name == RESOURCE:
            await self.disconnect()
        channel = grpc.aio.insecure_channel(f"unix:{self.socket.with_name(registration.endpoint)}")
        plugin = api_grpc.DevicePluginStub(channel)  # type: ignore[no-untyped-call]
        watching = asyncio.create_task(self._watch(plugin, registration))
        if registration.resource_name == RESOURCE:
            self._channel, self.plugin, self._watching = channel, plugin, watching
        else:
            self._other_plugins[registration.resource_name] = channel, plugin, watching

    async def disconnect(self) -> None:
        """Stop listening to the plugin."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
            self._watching = None
            await self._channel.close()

    async def allocate(
        self,
        uid: str,
        pod: str,
        container: str,
        *replicas: str,
        is_listed: bool = True,
        namespace: str = "default",
        resource: str = RESOURCE,
    ) -> Any:
        """Allocate *replicas* for a container, record it, and return the plugin's answer."""
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=replicas)])
        answer = (await self._plugin_of(resource).Allocate(request)).container_responses[0]
        self.granted.append(Granted(uid, namespace, pod, container, replicas, answer, resource, is_listed))
        self.write_checkpoint()
        return answer

    async def pre_start(self, *replicas: str, resource: str = RESOURCE) -> None:
        """Call PreStartContainer."""
        await self._plugin_of(resource).PreStartContainer(api.PreStartContainerRequest(devices_ids=replicas))

    async def preferred(self, available: list[str], size: int) -> list[str]:
        """Call GetPreferredAllocation for one container."""
        wanted = api.ContainerPreferredAllocationRequest(available_deviceIDs=available, allocation_size=size)
        answer = await self.plugin.GetPreferredAllocation(api.PreferredAllocationRequest(container_requests=[wanted]))
        return list(answer.container_responses[0].deviceIDs)

    def forget(self, uid: str) -> None:
        """Free the replicas of a Pod; as in a kubelet, the checkpoint changes only at the next allocation."""
        self.granted = [found for found in self.granted if found.pod_uid != uid]

    def write_checkpoint(self) -> None:
        """Write the checkpoint."""
        entries = [
            {
                "PodUID": found.pod_uid,
                "ContainerName": found.container,
                "ResourceName": found.resource,
                "DeviceIDs": {"-1": list(found.replicas)},
                "AllocResp": base64.b64encode(found.response.SerializeToString()).decode(),
            }
            for found in self.granted
        ]
        data = {"PodDeviceEntries": entries or None, "RegisteredDevices": {RESOURCE: sorted(self.devices)}}
        self.checkpoint.write_text(json.dumps({"Data": data, "Checksum": 0}))

    def _plugin_of(self, resource: str) -> Any:
        return self.plugin if resource == RESOURCE else self._other_plugins[resource][1]

    async def _watch(self, plugin: Any, registration: Any) -> None:
        is_counted = False
        async for answer in plugin.ListAndWatch(api.Empty()):
            devices = {device.ID: device.health for device in answer.devices}
            if registration.resource_name == RESOURCE:
                self.devices = devices
            else:
                self.others[registration.resource_name] = devices
            if not is_counted:
                self.first_devices = devices
                self.registrations.append(registration)
                is_counted = True


class _Registration(api_grpc.RegistrationServicer):
    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    async def Register(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self._kubelet.refusal:
            await context.abort(grpc.StatusCode.UNKNOWN, self._kubelet.refusal)
        asyncio.get_running_loop().call_later(0.01, lambda: asyncio.ensure_future(self._kubelet.connect(request)))
        return api.Empty()


class _PodResources(resources_grpc.PodResourcesListerServicer):
    def __init__(self, kubelet: Kubelet) -> None:
        self._kubelet = kubelet

    async def List(self, request: Any, context: Any) -> Any:  # noqa: N802
        self._kubelet.lists += 1
        await self._kubelet.held_lists.wait()
        if self._kubelet.refused_lists:
            self._kubelet.refused_lists -= 1
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        return resources.ListPodResourcesResponse(
            pod_resources=[
                resources.PodResources(
                    name=found.pod,
                    namespace=found.namespace,
                    containers=[
                        resources.ContainerResources(
                            name=found.container,
                            devices=[
                                resources.ContainerDevices(resource_name=found.resource, device_ids=[replica])
                                for replica in found.replicas
                            ],
                        )
                    ],
                )
                for found in self._kubelet.granted
                if found.is_listed
            ]
        )
