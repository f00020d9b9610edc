"""
A device plugin with settable answers, and the Node that it serves.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from conformance.peers.clusters import NODE, Peer
from conformance.peers.objects import IMAGE, Api, a_pod
from hamicommon.model import Object
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as pb
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources_api
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2_grpc as resources_grpc
from testbed.waiting import NotInTimeError, eventually

SECONDS = 60.0
"""The time limit of every action of a kubelet, which may include a retry."""
_OWN_CHANNEL = [("grpc.use_local_subchannel_pool", 1)]
Owner = tuple[str, str, list[str]]
"""Pod, container and ids."""


class Plugin(pb_grpc.DevicePluginServicer):
    """A device plugin that records its calls."""

    def __init__(self, host: "Host", count: int, socket: str, pre_start: bool) -> None:
        self.socket = socket
        self.calls: list[tuple[str, list[str]]] = []
        """The calls in order: name, and ids of the request."""
        self.owners: dict[str, list[Owner]] = {"Allocate": [], "PreStartContainer": []}
        """For each call, the owners of its ids that PodResources showed during the call."""
        self.preferences: list[tuple[list[str], list[str], int]] = []
        """The requests of GetPreferredAllocation: available ids, ids to include, size."""
        self.prefer: Callable[[list[str], list[str], int], list[str]] = lambda available, must, size: []
        self.respond: Callable[[list[str]], pb.ContainerAllocateResponse] = lambda ids: pb.ContainerAllocateResponse(
            envs={"DEVICES": ",".join(ids)}
        )
        self.before_start: Callable[[list[str]], None] = lambda ids: None
        self._host = host
        self._ids = [f"dev-{index:03}" for index in range(count)]
        self._unhealthy: set[str] = set()
        self._changed = asyncio.Condition()
        self._pre_start = pre_start
        self._server = grpc.aio.server()
        pb_grpc.add_DevicePluginServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]

    @property
    def starts(self) -> list[list[str]]:
        """The ids of each call to PreStartContainer."""
        return [ids for call, ids in self.calls if call == "PreStartContainer"]

    async def start(self) -> None:
        """Serve and register."""
        self._server.add_insecure_port(f"unix:{self._host.peer.device_plugins / self.socket}")
        await self._server.start()
        await self.register()

    async def register(self) -> None:
        """Register with the kubelet. The request contradicts the plugin's options."""
        options = pb.DevicePluginOptions(pre_start_required=not self._pre_start)
        await self._host.register(
            pb.RegisterRequest(
                version="v1beta1", endpoint=self.socket, resource_name=self._host.resource, options=options
            )
        )

    async def stop(self) -> None:
        """Stop serving at once, like a killed process."""
        await self._server.stop(None)

    async def set_unhealthy(self, *ids: str) -> None:
        """Report exactly *ids* as unhealthy."""
        self._unhealthy = set(ids)
        async with self._changed:
            self._changed.notify_all()

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> pb.DevicePluginOptions:  # noqa: N802
        """Answer with the options that take effect."""
        return pb.DevicePluginOptions(pre_start_required=self._pre_start, get_preferred_allocation_available=True)

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[pb.ListAndWatchResponse]:  # noqa: N802
        """Report all devices, and again after each change of health."""
        while True:
            devices = [
                pb.Device(ID=id_, health="Unhealthy" if id_ in self._unhealthy else "Healthy") for id_ in self._ids
            ]
            yield pb.ListAndWatchResponse(devices=devices)
            async with self._changed:
                await self._changed.wait()

    async def GetPreferredAllocation(self, request: Any, context: Any) -> pb.PreferredAllocationResponse:  # noqa: N802
        """Answer with the result of `prefer`."""
        (asked,) = request.container_requests
        available, must = sorted(asked.available_deviceIDs), sorted(asked.must_include_deviceIDs)
        self.preferences.append((available, must, asked.allocation_size))
        ids = self.prefer(available, must, asked.allocation_size)
        responses = [pb.ContainerPreferredAllocationResponse(deviceIDs=ids)] if ids else []
        return pb.PreferredAllocationResponse(container_responses=responses)

    async def Allocate(self, request: Any, context: Any) -> pb.AllocateResponse:  # noqa: N802
        """Answer with the result of `respond`, or an error if it raises ValueError."""
        (asked,) = request.container_requests
        ids = sorted(asked.devices_ids)
        await self._note("Allocate", ids)
        try:
            return pb.AllocateResponse(container_responses=[self.respond(ids)])
        except ValueError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise AssertionError from error

    async def PreStartContainer(self, request: Any, context: Any) -> pb.PreStartContainerResponse:  # noqa: N802
        """Answer with an error if `before_start` raises ValueError."""
        ids = sorted(request.devices_ids)
        await self._note("PreStartContainer", ids)
        try:
            self.before_start(ids)
        except ValueError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return pb.PreStartContainerResponse()

    async def _note(self, call: str, ids: list[str]) -> None:
        self.calls.append((call, ids))
        self.owners[call] += [owner for owner in await self._host.owners() if set(owner[2]) & set(ids)]


@dataclass
class Host:
    """The cluster's Node, a resource and a CDI kind for this test, and helpers for the tests."""

    peer: Peer
    api: Api
    plugins: list[Plugin] = field(default_factory=list)

    @property
    def resource(self) -> str:
        """The resource of this test's plugins."""
        return f"conformance.test/{self.api.namespace}"

    # --- devices ---------------------------------------------------------------------------------------------------

    async def plugin(self, count: int = 8, *, socket: str = "", pre_start: bool = True) -> Plugin:
        """Start a plugin with *count* devices, and wait until the kubelet has them."""
        plugin = Plugin(self, count, socket or f"{self.api.namespace}.sock", pre_start)
        self.plugins.append(plugin)
        await plugin.start()
        await eventually(lambda: self._has_devices(count), seconds=SECONDS)
        return plugin

    async def _has_devices(self, count: int) -> bool:
        return len(await self.devices()) == count

    async def register(self, request: pb.RegisterRequest) -> None:
        """Call the kubelet's Registration."""
        async with grpc.aio.insecure_channel(f"unix:{self.peer.device_plugins}/kubelet.sock", _OWN_CHANNEL) as channel:
            stub: Any = pb_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            await stub.Register(request, timeout=10)

    @contextlib.asynccontextmanager
    async def lister(self) -> AsyncIterator[Any]:
        """Yield a stub of the kubelet's PodResources API."""
        async with grpc.aio.insecure_channel(f"unix:{self.peer.pod_resources}/kubelet.sock", _OWN_CHANNEL) as channel:
            yield resources_grpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]

    async def devices(self) -> list[str]:
        """Return the ids of all devices of the kubelet, free and allocated."""
        async with self.lister() as stub:
            answer = await stub.GetAllocatableResources(resources_api.AllocatableResourcesRequest(), timeout=5)
        return sorted(id_ for one in answer.devices if one.resource_name == self.resource for id_ in one.device_ids)

    async def owners(self) -> list[Owner]:
        """Return every container of the test to which PodResources assigns devices."""
        async with self.lister() as stub:
            answer = await stub.List(resources_api.ListPodResourcesRequest(), timeout=5)
        return [
            (pod.name, container.name, sorted(id_ for devices in container.devices for id_ in devices.device_ids))
            for pod in answer.pod_resources
            for container in pod.containers
            if container.devices and pod.namespace == self.api.namespace
        ]

    async def amounts(self) -> tuple[str | None, str | None]:
        """Return the Node's capacity and allocatable of the resource."""
        status = (await self.api.get(f"/api/v1/nodes/{NODE}"))["status"]
        return status["capacity"].get(self.resource), status["allocatable"].get(self.resource)

    async def amounts_are(self, capacity: str, allocatable: str) -> None:
        """Wait until the Node has this capacity and allocatable."""

        async def so_says() -> bool:
            assert (capacity, allocatable) == await self.amounts()
            return True

        await eventually(so_says, seconds=SECONDS)

    @property
    def cdi_file(self) -> Path:
        """The test's CDI spec."""
        return self.peer.cdi / f"{self.api.namespace}.json"

    def cdi_device(self, name: str = "dev") -> str:
        """Return the full name of a CDI device of the test."""
        return f"conformance.test/{self.api.namespace}={name}"

    def write_cdi(self, device: str = "dev", **edits: Any) -> None:
        """Write a spec with one device, by a rename within the folder."""
        found = {"name": device, "containerEdits": edits}
        kind = f"conformance.test/{self.api.namespace}"
        self.peer.cdi.mkdir(parents=True, exist_ok=True)
        draft = self.cdi_file.with_suffix(".new")
        draft.write_text(json.dumps({"cdiVersion": "0.6.0", "kind": kind, "devices": [found]}))
        draft.rename(self.cdi_file)

    # --- Pods ------------------------------------------------------------------------------------------------------

    def container(self, name: str = "main", script: str = "exec sleep 1000", devices: int = 0, **more: Any) -> Object:
        """Return a container that runs *script* in a shell, with *devices* of the resource."""
        limits = {"limits": {self.resource: str(devices)}} if devices else {}
        return {"name": name, "image": IMAGE, "command": ["sh", "-c", script], "resources": limits, **more}

    async def create(self, name: str, *containers: Object, **spec: Any) -> Object:
        """Create a Pod that is bound to the Node. Without *containers* it has one that sleeps."""
        body = a_pod(name, nodeName=NODE, containers=list(containers) or [self.container()], **spec)
        made: Object = await self.api.create(self.api.pods, body)
        return made

    async def until(self, name: str, holds: Callable[[Object], Any], seconds: float = SECONDS) -> Object:
        """Return the Pod *name* once *holds* is true of its status."""

        async def found() -> Object | None:
            pod = await self.api.pod(name)
            return pod if holds(pod["status"]) else None

        try:
            pod: Object = await eventually(found, seconds=seconds)
        except NotInTimeError as error:
            raise AssertionError(f"{name}: {(await self.api.pod(name))['status']}") from error
        return pod

    @contextlib.asynccontextmanager
    async def statuses(self, name: str) -> AsyncIterator[list[Object]]:
        """Yield a list that gets every later status of the Pod *name*, and starts with the present one."""
        pods, version = await self.api.list(self.api.pods)
        seen = [pod["status"] for pod in pods if pod["metadata"]["name"] == name]

        async def watch() -> None:
            async for _, pod in self.api.watch(self.api.pods, version, fieldSelector=f"metadata.name={name}"):
                seen.append(pod["status"])

        watching = asyncio.create_task(watch())
        try:
            yield seen
        finally:
            watching.cancel()

    async def phase(self, name: str, phase: str, seconds: float = SECONDS) -> Object:
        """Return the Pod *name* once its phase is *phase*. Running also means that every container has started."""

        def is_so(status: Object) -> bool:
            started = [found.get("started") for found in status.get("containerStatuses") or ()]
            return bool(status.get("phase") == phase) and (phase != "Running" or (bool(started) and all(started)))

        return await self.until(name, is_so, seconds)

    async def waits(self, name: str, reason: str, container: int = 0) -> str:
        """Wait until a container waits with *reason*, and return the message."""

        def is_so(status: Object) -> bool:
            state = status["containerStatuses"][container]["state"]
            return bool(state.get("waiting", {}).get("reason") == reason)

        pod = await self.until(name, is_so)
        message: str = pod["status"]["containerStatuses"][container]["state"]["waiting"]["message"]
        return message

    async def log(self, name: str, container: str = "main", **query: str) -> str:
        """Return the log of a container."""
        return await self.api.text(f"{self.api.pods}/{name}/log", container=container, **query)

    async def says(self, name: str, text: str, container: str = "main") -> str:
        """Return the log of a container once it has *text*."""

        async def found() -> str:
            log = await self.log(name, container)
            assert text in log
            return log

        log: str = await eventually(found, seconds=SECONDS)
        return log

    async def gone(self, name: str) -> None:
        """Wait until the Pod *name* does not exist."""

        async def is_gone() -> bool:
            return not await self.api.exists(f"{self.api.pods}/{name}")

        await eventually(is_gone, seconds=SECONDS)


@contextlib.asynccontextmanager
async def host(peer: Peer, api: Api) -> AsyncIterator[Host]:
    """Yield the Node for one test. Its plugins and its CDI spec are removed afterwards."""
    found = Host(peer, api)
    try:
        yield found
    finally:
        for plugin in found.plugins:
            await plugin.stop()
        found.cdi_file.unlink(missing_ok=True)
