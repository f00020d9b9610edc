"""
The kubelet's PodResources API v1: which container owns which device ids.

Owns the form of the answers. Like in the kubelet, a container appears once its Pod is admitted, each device id is a
separate entry, and ordinary init containers and finished Pods do not appear. Must never change an allocation.
Neighbours: `manager` knows the owners, `main` the Pods.
Source: https://github.com/kubernetes/kubernetes/blob/v1.34.4/pkg/kubelet/apis/podresources/server_v1.go
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import grpc

from hamicommon.model import Object
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2_grpc as api_grpc
from minicluster.kubelet.devices.manager import DeviceManager
from minicluster.kubelet.podspec import is_sidecar


class PodResourcesServer(api_grpc.PodResourcesListerServicer):
    """`pod-resources/kubelet.sock` below the kubelet's root."""

    def __init__(self, directory: Path, devices: DeviceManager, active_pods: Callable[[], Iterable[Object]]) -> None:
        self._socket = directory / "kubelet.sock"
        self._devices = devices
        self._active_pods = active_pods
        self._server = grpc.aio.server()
        api_grpc.add_PodResourcesListerServicer_to_server(self, self._server)  # type: ignore[no-untyped-call]

    async def start(self) -> None:
        """Serve."""
        self._socket.parent.mkdir(parents=True, exist_ok=True)
        self._socket.unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix:{self._socket}")
        await self._server.start()

    async def close(self) -> None:
        """Stop serving."""
        await self._server.stop(None)

    async def List(  # noqa: N802
        self, request: api.ListPodResourcesRequest, context: Any
    ) -> api.ListPodResourcesResponse:
        """Return all active Pods."""
        self._devices.free_finished()
        return api.ListPodResourcesResponse(pod_resources=[self._resources(pod) for pod in self._active_pods()])

    async def Get(self, request: api.GetPodResourcesRequest, context: Any) -> api.GetPodResourcesResponse:  # noqa: N802
        """Return one active Pod."""
        wanted = (request.pod_namespace, request.pod_name)
        for pod in self._active_pods():
            if (pod["metadata"]["namespace"], pod["metadata"]["name"]) == wanted:
                return api.GetPodResourcesResponse(pod_resources=self._resources(pod))
        message = f"pod {request.pod_name} in namespace {request.pod_namespace} not found"
        await context.abort(grpc.StatusCode.UNKNOWN, message)
        raise AssertionError("abort raises")

    async def GetAllocatableResources(  # noqa: N802
        self, request: api.AllocatableResourcesRequest, context: Any
    ) -> api.AllocatableResourcesResponse:
        """Return all healthy devices."""
        return api.AllocatableResourcesResponse(devices=_one_entry_each(self._devices.healthy_devices()))

    def _resources(self, pod: Object) -> api.PodResources:
        metadata, spec = pod["metadata"], pod["spec"]
        sidecars = [container for container in spec.get("initContainers", ()) if is_sidecar(container)]
        containers = [
            api.ContainerResources(
                name=container["name"],
                devices=_one_entry_each(self._devices.devices_of(metadata["uid"], container["name"])),
            )
            for container in [*sidecars, *spec["containers"]]
        ]
        return api.PodResources(name=metadata["name"], namespace=metadata["namespace"], containers=containers)


def _one_entry_each(devices: dict[str, list[str]]) -> list[api.ContainerDevices]:
    return [
        api.ContainerDevices(resource_name=resource, device_ids=[id_])
        for resource, ids in devices.items()
        for id_ in ids
    ]
