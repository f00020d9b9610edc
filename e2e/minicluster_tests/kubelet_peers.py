"""
The real peers of a kubelet under test: an API server, the kubelet as a process, a device plugin on its socket.

Owns their start and end, and builders for the objects a test sends. Knows no promise.
"""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2_grpc as api_grpc
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources_api
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2_grpc as resources_grpc
from minicluster.client import ApiError, Client
from minicluster.kubelet.containers import kill_all

Object = dict[str, Any]

NODE = "node-1"
RESOURCE = "example.test/gpu"
E2E = Path(__file__).resolve().parent.parent


async def eventually(condition: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Return what *condition*, plain or async, returns once that is true; what it raises by then is raised."""
    deadline = asyncio.get_running_loop().time() + seconds
    while True:
        try:
            found = condition()
            found = await found if isinstance(found, Awaitable) else found
            if found:
                return found
            problem: Exception = AssertionError(f"not true within {seconds} s: {condition}")
        except (AssertionError, ApiError, KeyError, OSError, grpc.aio.AioRpcError) as error:
            problem = error
        if asyncio.get_running_loop().time() > deadline:
            raise problem
        await asyncio.sleep(0.02)


def a_container(name: str = "main", script: str = "sleep 1000", devices: int = 0, **more: Any) -> Object:
    """
    Return a container that runs *script* in a shell.

    A path that is mounted goes into `args`, as $0 and on: without namespaces, one inside a script cannot be mapped.
    """
    limits = {"limits": {RESOURCE: str(devices)}} if devices else {}
    return {"name": name, "image": "shell", "command": ["sh", "-c", script], "resources": limits, **more}


def a_pod(name: str, *containers: Object, **spec: Any) -> Object:
    """Return a Pod that is already bound to the node under test."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", **spec.pop("metadata", {})},
        "spec": {"nodeName": NODE, "containers": list(containers) or [a_container()], **spec},
    }


def free_ids(count: int) -> list[str]:
    """Return *count* device ids."""
    return [f"dev-{index:03}" for index in range(count)]


@dataclass
class Process:
    """One component as its own process."""

    arguments: list[str]
    log: Path
    popen: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        with self.log.open("ab") as log:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "minicluster", *self.arguments],
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(E2E)},
            )

    def wait(self) -> int:
        """Return its exit code once it has ended."""
        assert self.popen is not None
        return self.popen.wait(20)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it, and wait until it is gone."""
        if self.popen is not None and self.popen.poll() is None:
            self.popen.send_signal(how)
            self.wait()


class Plugin(api_grpc.DevicePluginServicer):
    """A device plugin whose answers a test can set; it writes down what it is asked."""

    def __init__(self, directory: Path, ids: list[str], socket: str = "plugin.sock", pre_start: bool = True) -> None:
        self.directory = directory
        self.socket = socket
        self.calls: list[tuple[str, list[str]]] = []
        """Name of the call and the ids of its request, in order."""
        self.owners: dict[str, list[tuple[str, str, list[str]]]] = {"Allocate": [], "PreStartContainer": []}
        """What PodResources showed inside the call: Pod, container and ids of each owner."""
        self.preferences: list[tuple[list[str], list[str], int]] = []
        self.prefer: Callable[[list[str], list[str], int], list[str]] = lambda available, must, size: []
        self.respond: Callable[[list[str]], api.ContainerAllocateResponse] = lambda ids: api.ContainerAllocateResponse(
            envs={"DEVICES": ",".join(ids)}
        )
        self.before_start: Callable[[list[str]], None] = lambda ids: None
        self._ids = ids
        self._unhealthy: set[str] = set()
        self._changed = asyncio.Condition()
        self._pre_start = pre_start
        self._server = grpc.aio.server()
        api_grpc.add_DevicePluginServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Serve and register."""
        self._server.add_insecure_port(f"unix:{self.directory / self.socket}")
        await self._server.start()
        await self.register()

    async def register(self) -> None:
        """Register with the kubelet, claiming in the request the opposite of what the options say."""
        async with grpc.aio.insecure_channel(
            f"unix:{self.directory / 'kubelet.sock'}", options=[("grpc.use_local_subchannel_pool", 1)]
        ) as channel:
            options = api.DevicePluginOptions(pre_start_required=not self._pre_start)
            request = api.RegisterRequest(
                version="v1beta1", endpoint=self.socket, resource_name=RESOURCE, options=options
            )
            stub: Any = api_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            await stub.Register(request, timeout=5)

    async def stop(self) -> None:
        """End it as a killed process would."""
        await self._server.stop(None)

    async def set_unhealthy(self, *ids: str) -> None:
        """Report exactly *ids* as unhealthy."""
        self._unhealthy = set(ids)
        async with self._changed:
            self._changed.notify_all()

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> api.DevicePluginOptions:  # noqa: N802
        """Answer with what counts."""
        return api.DevicePluginOptions(pre_start_required=self._pre_start, get_preferred_allocation_available=True)

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:  # noqa: N802
        """Report all devices, again whenever their health changes."""
        while True:
            devices = [
                api.Device(ID=id_, health="Unhealthy" if id_ in self._unhealthy else "Healthy") for id_ in self._ids
            ]
            yield api.ListAndWatchResponse(devices=devices)
            async with self._changed:
                await self._changed.wait()

    async def GetPreferredAllocation(self, request: Any, context: Any) -> api.PreferredAllocationResponse:  # noqa: N802
        """Answer with what `prefer` returns."""
        asked = request.container_requests[0]
        available, must = list(asked.available_deviceIDs), list(asked.must_include_deviceIDs)
        self.preferences.append((available, must, asked.allocation_size))
        ids = self.prefer(available, must, asked.allocation_size)
        responses = [api.ContainerPreferredAllocationResponse(deviceIDs=ids)] if ids else []
        return api.PreferredAllocationResponse(container_responses=responses)

    async def Allocate(self, request: Any, context: Any) -> api.AllocateResponse:  # noqa: N802
        """Answer with what `respond` returns."""
        ids = list(request.container_requests[0].devices_ids)
        await self._note("Allocate", ids)
        try:
            return api.AllocateResponse(container_responses=[self.respond(ids)])
        except ValueError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise AssertionError from error

    async def PreStartContainer(self, request: Any, context: Any) -> api.PreStartContainerResponse:  # noqa: N802
        """Refuse if `before_start` raises ValueError."""
        ids = list(request.devices_ids)
        await self._note("PreStartContainer", ids)
        try:
            self.before_start(ids)
        except ValueError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        return api.PreStartContainerResponse()

    async def _note(self, call: str, ids: list[str]) -> None:
        self.calls.append((call, ids))
        for pod, container, owned in await owners(self.directory.parent):
            if set(owned) & set(ids):
                self.owners[call].append((pod, container, owned))


async def owners(root: Path) -> list[tuple[str, str, list[str]]]:
    """Return Pod, container and ids of every container that PodResources shows with devices."""
    async with grpc.aio.insecure_channel(
        f"unix:{root / 'pod-resources' / 'kubelet.sock'}", options=[("grpc.use_local_subchannel_pool", 1)]
    ) as channel:
        stub: Any = resources_grpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
        answer = await stub.List(resources_api.ListPodResourcesRequest(), timeout=5)
    return [
        (pod.name, container.name, [id_ for devices in container.devices for id_ in devices.device_ids])
        for pod in answer.pod_resources
        for container in pod.containers
        if container.devices
    ]


@dataclass
class Cluster:
    """An API server and one kubelet, with the calls a test makes."""

    root: Path
    client: Client
    kubelet: Process
    plugins: list[Plugin] = field(default_factory=list)

    async def plugin(self, count: int = 8, **how: Any) -> Plugin:
        """Start a plugin with *count* devices and wait until the Node offers them."""
        plugin = Plugin(self.root / "device-plugins", free_ids(count), **how)
        self.plugins.append(plugin)
        await plugin.start()
        await self.allocatable_is(str(count))
        return plugin

    async def allocatable_is(self, amount: str) -> None:
        """Wait until the Node offers *amount* of the plugin's resource."""
        await eventually(lambda: self._offers(amount))

    async def _offers(self, amount: str) -> bool:
        node = await self.client.get(f"/api/v1/nodes/{NODE}")
        assert amount == node["status"]["allocatable"].get(RESOURCE)
        return True

    async def create(self, pod: Object) -> Object:
        """Create *pod* and return it as the API server has it."""
        created: Object = await self.client.create("/api/v1/namespaces/default/pods", pod)
        return created

    async def pod(self, name: str) -> Object:
        """Return the Pod *name* as it is now."""
        found: Object = await self.client.get(f"/api/v1/namespaces/default/pods/{name}")
        return found

    async def until(self, name: str, condition: Callable[[Object], Any], seconds: float = 10.0) -> Object:
        """Return the Pod *name* once *condition* holds for its status."""

        async def holds() -> Object | None:
            pod = await self.pod(name)
            return pod if condition(pod["status"]) else None

        try:
            found: Object = await eventually(holds, seconds)
        except AssertionError as error:
            raise AssertionError(f"{(await self.pod(name))['status']}\n{self.kubelet.log.read_text()}") from error
        return found

    async def phase(self, name: str, phase: str, seconds: float = 10.0) -> Object:
        """Return the Pod *name* once its phase is *phase*."""
        return await self.until(name, lambda status: status.get("phase") == phase, seconds)

    async def log(self, name: str, container: str = "main") -> str:
        """Return what the newest attempt of a container has printed."""
        uid = (await self.pod(name))["metadata"]["uid"]
        logs = sorted((self.root / "pods" / uid / container).glob("*.log"))
        return logs[-1].read_text() if logs else ""

    async def says(self, name: str, text: str, container: str = "main") -> str:
        """Return a container's log once it holds *text*."""

        async def found() -> str:
            log = await self.log(name, container)
            assert text in log
            return log

        log: str = await eventually(found)
        return log

    async def delete(self, name: str, grace_seconds: int = 0) -> None:
        """Delete the Pod *name* and wait until it is gone."""
        await self.client.delete(f"/api/v1/namespaces/default/pods/{name}", grace_seconds=grace_seconds)

        async def is_gone() -> bool:
            with contextlib.suppress(ApiError):
                await self.pod(name)
                return False
            return True

        await eventually(is_gone)


@contextlib.contextmanager
def processes(root: Path, *flags: str) -> Iterator[Process]:
    """Run an API server and a kubelet below *root*, yielding the kubelet; all its containers are ended with it."""
    kubeconfig = root / "kubeconfig"
    apiserver = Process(["apiserver", "--listen", "127.0.0.1:0", "--kubeconfig", str(kubeconfig)], root / "api.log")
    common = ["--node", NODE, "--root", str(root / "k"), "--backoff-scale", "0.05"]
    kubelet = Process(["kubelet", "--kubeconfig", str(kubeconfig), *common, *flags], root / "kubelet.log")
    apiserver.start()
    try:
        deadline = time.monotonic() + 20
        while not kubeconfig.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        kubelet.start()
        yield kubelet
    finally:
        kubelet.end()
        apiserver.end()
        kill_all(root / "k")


@contextlib.asynccontextmanager
async def a_cluster(root: Path, kubelet: Process) -> AsyncIterator[Cluster]:
    """Reach what `processes` runs, once the Node is registered."""
    async with Client.from_kubeconfig(root / "kubeconfig", "test") as client:
        cluster = Cluster(root / "k", client, kubelet)
        await eventually(lambda: client.get(f"/api/v1/nodes/{NODE}"), 20)
        yield cluster
        for plugin in cluster.plugins:
            await plugin.stop()
        if cluster.plugins:
            # A plugin that registers before the kubelet has seen its predecessor's end would be taken for ended too.
            await cluster.allocatable_is("0")
