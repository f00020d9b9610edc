"""
Speak the kubelet's gRPC for device plugins: serve DevicePlugin, register, list PodResources. `dra` does so for claims.

Owns the sockets, and the translation between messages and values. `Answers` decide. An error they raise becomes the
error of the call, and the kubelet shows it in the Pod's events.
Source: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import structlog

from hami_device_plugin.adapters.sockets import ServedSocket, errors_of
from hami_device_plugin.decide.allocate.allocation import Grant
from hami_device_plugin.decide.allocate.owner import Listed
from hami_device_plugin.decide.replicas.ids import Replica
from hami_device_plugin.decide.replicas.preference import PreferredRequest
from hamicommon.errors import HamiError
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2_grpc as api_grpc
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2_grpc as resources_grpc

T = TypeVar("T")

API_VERSION = "v1beta1"
CALL_SECONDS = 10.0
LIST_TRIES = 8
LIST_PAUSE_SECONDS = 0.05
"""The kubelet answers 100 lists a second, 10 at once, and rejects the rest."""
_LARGE_MESSAGES = [("grpc.max_receive_message_length", 16 * 2**20)]

logger = structlog.get_logger()


class KubeletError(HamiError):
    """The kubelet does not answer, or rejects the call."""


class Answers(Protocol):
    """What answers the kubelet's calls; the kubelet gets the text of a `HamiError`."""

    async def allocate(self, requests: Sequence[Sequence[str]]) -> Sequence[Grant]:
        """Answer Allocate: one grant for each request, which are replica IDs."""

    async def preferred(self, requests: Sequence[PreferredRequest]) -> Sequence[Sequence[str] | None]:
        """Answer GetPreferredAllocation: the replicas to prefer for each request, None for no preference."""

    async def pre_start(self, replicas: frozenset[str]) -> None:
        """Answer PreStartContainer for the container that has *replicas*."""


class PluginServer(api_grpc.DevicePluginServicer):
    """The plugin's side of the DevicePlugin API, at one socket."""

    def __init__(
        self, path: Path, answers: Answers, replicas: Sequence[Replica], heard: Callable[[], object] = bool
    ) -> None:
        """Serve *replicas* at *path* once started; *heard* is called when the kubelet begins or ceases to listen."""
        self.path = path
        self._socket = ServedSocket(path)
        self.open_streams = 0
        """ListAndWatch calls in progress; at 0 the kubelet does not hear of devices."""
        self._answers = answers
        self._heard = heard
        self._replicas = tuple(replicas)
        self._changed = asyncio.Event()
        """Set when the replicas have changed; a new event replaces it."""
        self._is_stopping = False

    async def start(self) -> None:
        """
        Start to serve.

        Raises:
            SocketError: the socket cannot be created.
        """
        with errors_of(self.path):
            for stale in self.path.parent.glob(f"{self.path.name}.*"):
                stale.unlink(missing_ok=True)
        add = partial(api_grpc.add_DevicePluginServicer_to_server, self)
        await self._socket.start(f"{self.path.name}.{os.getpid()}", add)

    async def stop(self) -> None:
        """Finish the calls in progress, and remove the socket if it is still this server's."""
        self._socket.remove()
        self._is_stopping = True
        self._changed.set()
        await self._socket.stop()

    def is_in_place(self) -> bool:
        """Return whether the socket at this path is still this server's."""
        return self._socket.is_in_place()

    def offer(self, replicas: Sequence[Replica]) -> None:
        """Send *replicas* to the kubelet, unless it has them already."""
        if tuple(replicas) == self._replicas:
            return
        self._replicas = tuple(replicas)
        self._changed.set()
        self._changed = asyncio.Event()

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Request PreStartContainer, and GetPreferredAllocation as HAMi always does."""
        return options()

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Send the replicas now and after each change, while the kubelet listens."""
        self.open_streams += 1
        self._heard()
        try:
            while not self._is_stopping:
                changed = self._changed
                yield list_message(self._replicas)
                await changed.wait()
        finally:
            self.open_streams -= 1
            self._heard()

    async def GetPreferredAllocation(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Suggest replicas."""
        wanted = [
            PreferredRequest(
                tuple(found.available_deviceIDs), tuple(found.must_include_deviceIDs), found.allocation_size
            )
            for found in request.container_requests
        ]
        answers = await _answer(context, self._answers.preferred(wanted))
        chosen = [answer for answer in answers if answer is not None]
        return api.PreferredAllocationResponse(
            container_responses=[api.ContainerPreferredAllocationResponse(deviceIDs=answer) for answer in chosen]
        )

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Answer for each container of the request."""
        wanted = [tuple(found.devices_ids) for found in request.container_requests]
        grants = await _answer(context, self._answers.allocate(wanted))
        return api.AllocateResponse(container_responses=[_container_response(grant) for grant in grants])

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Prepare the container that has the request's replicas."""
        await _answer(context, self._answers.pre_start(frozenset(request.devices_ids)))
        return api.PreStartContainerResponse()


class PodResources:
    """The kubelet's list of the containers with replicas of one resource."""

    def __init__(self, path: Path, resource: str) -> None:
        """Connect when first asked."""
        self._path = path
        self._resource = resource
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=_LARGE_MESSAGES)
        self._stub = resources_grpc.PodResourcesListerStub(self._channel)  # type: ignore[no-untyped-call]

    async def listed(self) -> tuple[Listed, ...]:
        """
        Return the containers with replicas; ordinary init containers are not among them.

        Raises:
            KubeletError: the kubelet does not answer.
        """
        for left in reversed(range(LIST_TRIES)):
            try:
                answer = await self._stub.List(resources.ListPodResourcesRequest(), timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                if left and error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:
                    await asyncio.sleep(LIST_PAUSE_SECONDS * (LIST_TRIES - left))
                    continue
                raise KubeletError(f"PodResources at {self._path}: {error.code().name}: {error.details()}") from error
            return tuple(self._listed(answer))
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    def _listed(self, answer: Any) -> list[Listed]:
        return [
            Listed(pod.namespace, pod.name, container.name, replicas)
            for pod in answer.pod_resources
            for container in pod.containers
            if (replicas := self._replicas(container))
        ]

    def _replicas(self, container: Any) -> frozenset[str]:
        mine = [devices for devices in container.devices if devices.resource_name == self._resource]
        return frozenset(replica for devices in mine for replica in devices.device_ids)


def options() -> Any:
    """
    Return the calls that this plugin wants from the kubelet.

    It wants PreStartContainer under the lock too: a container may have been allocated by identity before.
    """
    return api.DevicePluginOptions(pre_start_required=True, get_preferred_allocation_available=True)


async def register(kubelet_socket: Path, endpoint: str, resource: str) -> None:
    """
    Register *resource* at *endpoint*, the name of a socket beside the kubelet's.

    Raises:
        KubeletError: the kubelet cannot be reached, or rejects the registration.
    """
    request = api.RegisterRequest(version=API_VERSION, endpoint=endpoint, resource_name=resource, options=options())
    async with grpc.aio.insecure_channel(f"unix:{kubelet_socket}") as channel:
        try:
            stub = api_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            await stub.Register(request, timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise KubeletError(
                f"kubelet at {kubelet_socket} does not register {resource}: {error.code().name}: {error.details()}"
            ) from error


async def _answer(context: Any, work: Awaitable[T]) -> T:
    """Wait for *work*; an error it raises ends the call with a message for the kubelet."""
    try:
        return await work
    except HamiError as error:
        await _abort(context, grpc.StatusCode.FAILED_PRECONDITION, str(error))
    except Exception as error:
        logger.error("A kubelet call failed", exc_info=error)
        await _abort(context, grpc.StatusCode.INTERNAL, f"{type(error).__name__} in the device plugin; see its log")


async def _abort(context: Any, code: Any, message: str) -> NoReturn:
    await context.abort(code, message)
    raise AssertionError("abort does not return")


def list_message(listed: Iterable[Replica]) -> Any:
    """Return the message that tells the kubelet of the replicas *listed*."""
    return api.ListAndWatchResponse(devices=[_device(replica) for replica in listed])


def _device(replica: Replica) -> Any:
    topology = None if replica.numa is None else api.TopologyInfo(nodes=[api.NUMANode(ID=replica.numa)])
    return api.Device(ID=replica.id, health="Healthy" if replica.is_healthy else "Unhealthy", topology=topology)


def _container_response(grant: Grant) -> Any:
    return api.ContainerAllocateResponse(
        envs=grant.env,
        mounts=[
            api.Mount(container_path=mount.container_path, host_path=mount.host_path, read_only=mount.is_read_only)
            for mount in grant.mounts
        ],
        devices=[
            api.DeviceSpec(container_path=node.container_path, host_path=node.host_path, permissions=node.permissions)
            for node in grant.device_nodes
        ],
        annotations=grant.annotations,
        cdi_devices=[api.CDIDevice(name=name) for name in grant.cdi_devices],
    )
