"""
A device plugin that does nothing: it answers each call at once.

A separate process for comparison with ours: same language, same gRPC server, same kubelet. Keeps no state.
"""

import argparse
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc

from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import deviceplugin_v1beta1_pb2_grpc as api_grpc

RESOURCE = "bench.example/empty"
SOCKET = "empty.sock"


def main() -> None:
    """Register at the kubelet of a directory, and serve until ended."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--directory", type=Path, required=True, help="of kubelet.sock")
    arguments.add_argument("--devices", type=int, required=True)
    given = arguments.parse_args()
    asyncio.run(_serve(given.directory, given.devices))


async def _serve(directory: Path, devices: int) -> None:
    server = grpc.aio.server()
    api_grpc.add_DevicePluginServicer_to_server(_Plugin(devices), server)  # type: ignore[no-untyped-call]
    server.add_insecure_port(f"unix:{directory / SOCKET}")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{directory / 'kubelet.sock'}") as channel:
        kubelet: Any = api_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
        await kubelet.Register(api.RegisterRequest(version="v1beta1", endpoint=SOCKET, resource_name=RESOURCE))
    await server.wait_for_termination()


class _Plugin(api_grpc.DevicePluginServicer):
    def __init__(self, devices: int) -> None:
        self._devices = [api.Device(ID=str(number), health="Healthy") for number in range(devices)]

    async def GetDevicePluginOptions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return api.DevicePluginOptions(pre_start_required=True)

    async def ListAndWatch(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        yield api.ListAndWatchResponse(devices=self._devices)
        await asyncio.Event().wait()

    async def Allocate(self, request: Any, context: Any) -> Any:  # noqa: N802
        return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()])

    async def PreStartContainer(self, request: Any, context: Any) -> Any:  # noqa: N802
        return api.PreStartContainerResponse()


if __name__ == "__main__":
    main()
