"""
A device plugin whose devices are all one CDI device: `python -m controlplane.guest.plugin RESOURCE CDI_DEVICE`.

A guest has no API server, so no other plugin can find out there what a Pod was promised. Waits for the kubelet,
registers once, prints `offered` when the kubelet offers the resource, and serves until it is killed.
Source: https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/.
"""

import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as pb
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2_grpc as pb_grpc
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2 as resources_api
from hamicommon.runtime.kubelet_api._proto import podresources_v1_pb2_grpc as resources_grpc

SOCKETS = Path("/var/lib/kubelet/device-plugins")
KUBELET = SOCKETS / "kubelet.sock"
POD_RESOURCES = Path("/var/lib/kubelet/pod-resources/kubelet.sock")
ENDPOINT = "guest.sock"
DEVICES = 16
POLL_SECONDS = 0.1


class Plugin(pb_grpc.DevicePluginServicer):
    """Gives every container the CDI device *name*."""

    def __init__(self, name: str) -> None:
        self._name = name

    def GetDevicePluginOptions(self, request: Any, context: Any) -> pb.DevicePluginOptions:  # noqa: N802
        """Answer that no other call is needed."""
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: Any, context: Any) -> Iterator[pb.ListAndWatchResponse]:  # noqa: N802
        """Report the devices, and keep the stream."""
        yield pb.ListAndWatchResponse(devices=[pb.Device(ID=str(n), health="Healthy") for n in range(DEVICES)])
        threading.Event().wait()

    def Allocate(self, request: Any, context: Any) -> pb.AllocateResponse:  # noqa: N802
        """Answer with the device's name for each container."""
        answer = pb.ContainerAllocateResponse(cdi_devices=[pb.CDIDevice(name=self._name)])
        return pb.AllocateResponse(container_responses=[answer for _ in request.container_requests])


def main(resource: str, name: str) -> None:
    """Serve until the process is killed."""
    while not KUBELET.exists():
        time.sleep(POLL_SECONDS)
    server = grpc.server(ThreadPoolExecutor())
    pb_grpc.add_DevicePluginServicer_to_server(Plugin(name), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{SOCKETS / ENDPOINT}")
    server.start()
    request = pb.RegisterRequest(version="v1beta1", endpoint=ENDPOINT, resource_name=resource)
    with grpc.insecure_channel(f"unix:{KUBELET}") as channel:
        pb_grpc.RegistrationStub(channel).Register(request, wait_for_ready=True)  # type: ignore[no-untyped-call]
    while not _is_offered(resource):
        time.sleep(POLL_SECONDS)
    print("offered", flush=True)
    server.wait_for_termination()


def _is_offered(resource: str) -> bool:
    with grpc.insecure_channel(f"unix:{POD_RESOURCES}") as channel:
        lister = resources_grpc.PodResourcesListerStub(channel)  # type: ignore[no-untyped-call]
        answer = lister.GetAllocatableResources(resources_api.AllocatableResourcesRequest(), wait_for_ready=True)
    return any(found.resource_name == resource for found in answer.devices)


if __name__ == "__main__":
    main(*sys.argv[1:])
