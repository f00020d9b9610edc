"""
The kubelet's side of the DevicePlugin API: the Registration server, and a client for each registered plugin.

Owns connections and calls. Must never decide which ids a container gets. Like the kubelet, it knows clients by resource
name only. So the end of an old instance's stream disconnects a new instance that has registered meanwhile. Neighbours:
`manager` is the handler.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/cm/devicemanager/plugin/v1beta1/handler.go
"""

import asyncio
import time
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, Protocol

import grpc

from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2_grpc as api_grpc

VERSION = "v1beta1"
CONNECT_SECONDS = 10.0
PRE_START_SECONDS = 30.0
"""The time limit of PreStartContainer. No other call has a limit."""

_CLOSING = "grpc: the client connection is closing"
_GO_CODE_NAMES = {"OK": "OK", "CANCELLED": "Canceled"}
_LOCAL_POOL = (("grpc.use_local_subchannel_pool", 1), ("grpc.default_authority", "localhost"))


class PluginError(Exception):
    """A call to a device plugin failed. The text is the kubelet's."""


class PluginHandler(Protocol):
    """Receives the events of plugins."""

    def plugin_connected(self, client: "PluginClient") -> None:
        """A plugin registered and answered GetDevicePluginOptions."""

    def plugin_disconnected(self, resource: str) -> None:
        """A stream of *resource* ended, possibly that of an older plugin."""

    def devices_reported(self, resource: str, devices: Sequence[api.Device]) -> None:
        """A ListAndWatch stream sent its list."""


class PluginClient:
    """
    One registered plugin. Without a socket, it is only known from before a restart.

    `stopped_at` is when its stream was considered ended (monotonic seconds), or None.
    """

    def __init__(self, resource: str, socket: Path | None) -> None:
        self.resource = resource
        self.options: api.DevicePluginOptions | None = None
        self.stopped_at: float | None = time.monotonic() if socket is None else None
        if socket is not None:
            self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_LOCAL_POOL)
            self._stub: Any = api_grpc.DevicePluginStub(self._channel)  # type: ignore[no-untyped-call]

    async def connect(self) -> None:
        """Connect to the plugin, and get its options, which override those in its registration."""
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await self._channel.channel_ready()
        except TimeoutError as error:
            raise PluginError(f"failed to dial device plugin: {self.resource}: context deadline exceeded") from error
        self.options = await _answer(
            self._stub.GetDevicePluginOptions(api.Empty()), "failed to get device plugin options: "
        )

    async def follow(self, handler: PluginHandler) -> None:
        """Pass the device lists to *handler* until the stream ends."""
        try:
            async for response in self._stub.ListAndWatch(api.Empty()):
                handler.devices_reported(self.resource, response.devices)
        except grpc.aio.AioRpcError:
            return
        except asyncio.CancelledError:
            if _is_ending():
                raise

    async def disconnect(self) -> None:
        """Close the connection, which ends all calls."""
        await self._channel.close()

    async def prefer(self, available: Sequence[str], must_include: Sequence[str], size: int) -> list[str]:
        """Return the ids that the plugin prefers. An empty answer leaves the choice to the kubelet."""
        request = api.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size
        )
        answer = await _answer(
            self._stub.GetPreferredAllocation(api.PreferredAllocationRequest(container_requests=[request])),
            "device plugin GetPreferredAllocation rpc failed with err: ",
        )
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else []

    async def allocate(self, ids: Sequence[str]) -> api.ContainerAllocateResponse:
        """Return what a container with *ids* needs."""
        self._refuse_if_stopped()
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=ids)])
        answer = await _answer(self._stub.Allocate(request))
        if not answer.container_responses:
            raise PluginError(f"no containers return in allocation response {answer}")
        response: api.ContainerAllocateResponse = answer.container_responses[0]
        return response

    async def pre_start(self, ids: Sequence[str]) -> None:
        """Call PreStartContainer for a container with *ids*, and wait for the answer."""
        try:
            self._refuse_if_stopped()
            request = api.PreStartContainerRequest(devices_ids=ids)
            await _answer(self._stub.PreStartContainer(request, timeout=PRE_START_SECONDS))
        except PluginError as error:
            raise PluginError(f"device plugin PreStartContainer rpc failed with err: {error}") from error

    def _refuse_if_stopped(self) -> None:
        if self.stopped_at is not None:
            raise PluginError(f"endpoint {self.resource} has been stopped")


async def _answer(call: Awaitable[Any], prefix: str = "") -> Any:
    """
    Await one call.

    Raises: PluginError with *prefix* and the kubelet's text, also if the channel was closed. gRPC cancels the call,
    and the cancellation would silently end the calling task.
    """
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise PluginError(prefix + go_error(error)) from error
    except asyncio.CancelledError:
        if _is_ending():
            raise
        raise PluginError(f"{prefix}rpc error: code = Canceled desc = {_CLOSING}") from None


def _is_ending() -> bool:
    """Return whether this task was cancelled, and not only the call that it waits for."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


class RegistrationServer(api_grpc.RegistrationServicer):
    """`kubelet.sock`, where plugins register."""

    def __init__(self, directory: Path, handler: PluginHandler) -> None:
        self.directory = directory
        self._handler = handler
        self._clients: dict[str, PluginClient] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = grpc.aio.server()
        api_grpc.add_RegistrationServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Delete all sockets in the directory, and serve."""
        self.directory.mkdir(parents=True, exist_ok=True)
        for path in self.directory.iterdir():
            if path.is_socket():
                path.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{self.directory / 'kubelet.sock'}")
        await self._server.start()

    async def close(self) -> None:
        """Stop serving, and disconnect all plugins."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(client.disconnect() for client in self._clients.values()))
        await self._server.stop(None)

    async def Register(self, request: api.RegisterRequest, context: Any) -> api.Empty:  # noqa: N802
        """Connect to the calling plugin, and then answer."""
        try:
            if request.version != VERSION:
                raise PluginError(
                    f'requested API version "{request.version}" is not supported by kubelet. '
                    f'Supported version is ["{VERSION}"]'
                )
            if not is_extended_resource(request.resource_name):
                raise PluginError(f'the ResourceName "{request.resource_name}" is invalid')
            await self._connect(request.resource_name, self.directory / request.endpoint)
        except PluginError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api.Empty()

    async def _connect(self, resource: str, socket: Path) -> None:
        client = PluginClient(resource, socket)
        self._clients[resource] = client
        try:
            await client.connect()
        except PluginError:
            self._clients.pop(resource, None)
            await client.disconnect()
            raise
        self._handler.plugin_connected(client)
        task = asyncio.create_task(self._run(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, client: PluginClient) -> None:
        await client.follow(self._handler)
        # By name, like the kubelet, so this may be an instance that has registered meanwhile.
        newest = self._clients.pop(client.resource, None)
        if newest is not None:
            await newest.disconnect()
            self._handler.plugin_disconnected(client.resource)
        if newest is not client:
            await client.disconnect()


def is_extended_resource(name: str) -> bool:
    """Return whether a device plugin may register *name*."""
    domain, separator, _ = name.partition("/")
    return bool(separator) and not domain.endswith("kubernetes.io") and not name.startswith("requests.")


def go_error(error: grpc.aio.AioRpcError) -> str:
    """Return Go's text of a gRPC error."""
    name = error.code().name
    code = _GO_CODE_NAMES.get(name, "".join(part.capitalize() for part in name.split("_")))
    return f"rpc error: code = {code} desc = {error.details()}"
