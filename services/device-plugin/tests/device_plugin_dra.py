"""
A kubelet that speaks dynamic resource allocation, and what a claim on the fake driver's devices looks like.

It finds drivers as the real one does: by the sockets in plugins_registry, of which it asks who they are.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import grpc
from device_plugin_process import NODE

from hamicommon.dra.names import DRIVER
from hamicommon.runtime.kubelet_api._proto import dra_health_v1_pb2 as health_api
from hamicommon.runtime.kubelet_api._proto import dra_health_v1_pb2_grpc as health_grpc
from hamicommon.runtime.kubelet_api._proto import dra_v1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import dra_v1_pb2_grpc as api_grpc
from hamicommon.runtime.kubelet_api._proto import pluginregistration_v1_pb2 as registration
from hamicommon.runtime.kubelet_api._proto import pluginregistration_v1_pb2_grpc as registration_grpc

POLL_SECONDS = 0.02


@dataclass
class DraKubelet:
    """One kubelet below *host*; it watches the registry while it runs."""

    host: Path
    drivers: list[Any] = field(default_factory=list)
    """What each driver said when it was registered, the newest last."""
    refusal: str = ""
    """Why drivers are not registered; empty to register them."""

    @property
    def root(self) -> Path:
        """The kubelet's directory."""
        return self.host / "kubelet"

    @property
    def registry(self) -> Path:
        """Where plugins put their registration sockets."""
        return self.root / "plugins_registry"

    async def __aenter__(self) -> Self:
        self.registry.mkdir(parents=True)
        self._channels: dict[str, Any] = {}
        self._known: dict[Path, int] = {}
        self._next = asyncio.Event()
        """Set at the next registration; a new event then replaces it."""
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        await asyncio.gather(self._watching, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()

    async def restart(self) -> None:
        """Forget all drivers, and register those that are there again, as a kubelet does that starts."""
        self._known.clear()
        self.drivers.clear()

    async def registered(self, count: int = 1) -> None:
        """Wait until *count* drivers are registered."""
        async with asyncio.timeout(60):
            while len(self.drivers) < count:
                await self._next.wait()

    async def prepare(self, *claims: dict[str, Any]) -> Any:
        """Call NodePrepareResources of the newest driver, and return its answer for each claim, by UID."""
        request = api.NodePrepareResourcesRequest(claims=[_name(claim) for claim in claims])
        return (await self._driver().NodePrepareResources(request, timeout=45)).claims

    async def unprepare(self, *claims: dict[str, Any]) -> dict[str, str]:
        """Call NodeUnprepareResources, and return each claim's error, by UID."""
        request = api.NodeUnprepareResourcesRequest(claims=[_name(claim) for claim in claims])
        answer = await self._driver().NodeUnprepareResources(request, timeout=45)
        return {uid: found.error for uid, found in answer.claims.items()}

    def health(self) -> Any:
        """Return the stream of the devices' health."""
        stub = health_grpc.DRAResourceHealthStub(self._channel())  # type: ignore[no-untyped-call]
        return stub.NodeWatchResources(health_api.NodeWatchResourcesRequest())

    def _driver(self) -> Any:
        return api_grpc.DRAPluginStub(self._channel())  # type: ignore[no-untyped-call]

    def _channel(self) -> Any:
        endpoint = self.drivers[-1].endpoint
        if endpoint not in self._channels:
            self._channels[endpoint] = grpc.aio.insecure_channel(f"unix:{endpoint}")
        return self._channels[endpoint]

    async def _watch(self) -> None:
        while True:
            sockets = {path: path.stat().st_ino for path in self.registry.glob("*.sock") if path.name[0] != "."}
            for path in self._known.keys() - sockets.keys():
                del self._known[path]  # A socket that comes later may have the same inode.
            for path in [path for path, inode in sockets.items() if self._known.get(path) != inode]:
                await self._register(path)
                self._known[path] = sockets[path]
            await asyncio.sleep(POLL_SECONDS)

    async def _register(self, path: Path) -> None:
        async with grpc.aio.insecure_channel(f"unix:{path}") as channel:
            stub = registration_grpc.RegistrationStub(channel)  # type: ignore[no-untyped-call]
            try:
                found = await stub.GetInfo(registration.InfoRequest(), timeout=5)
            except grpc.aio.AioRpcError:
                return  # A killed driver's socket.
            status = registration.RegistrationStatus(plugin_registered=not self.refusal, error=self.refusal)
            await stub.NotifyRegistrationStatus(status, timeout=5)
        if not self.refusal:
            self.drivers.append(found)
            self._next.set()
            self._next = asyncio.Event()


def a_result(device: str = "hami-gpu-0", request: str = "gpu", share: str = "s-1", **changes: Any) -> dict[str, Any]:
    """Return a result of a claim: 700 MiB and 5 % of the first device."""
    consumed = {"memory": "700Mi", "cores": "5", "replicas": "1"} | changes.pop("consumed", {})
    found = {"request": request, "driver": DRIVER, "pool": NODE, "device": device, "shareID": share}
    return found | {"consumedCapacity": consumed} | changes


def a_claim(name: str, *results: dict[str, Any], pods: tuple[str, ...] = (), **allocation: Any) -> dict[str, Any]:
    """Return a claim that is allocated to *results*, for the Pods of these names, by default one of its own name."""
    reserved = [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in pods or (name,)]
    devices = {"results": list(results or [a_result()])} | allocation
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"namespace": "default", "name": name, "uid": f"claim-{name}"},
        "status": {"allocation": {"devices": devices}, "reservedFor": reserved},
    }


def a_user(name: str, *uses: str, claim: str = "", **container: Any) -> dict[str, Any]:
    """
    Return a Pod whose containers use the claim *claim*, by default that of its own name.

    A container is `name` or `name=request`; by default there is `main`, which uses the whole claim.
    """
    containers = [_user(use, container) for use in uses or ("main",)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": {}},
        "spec": {
            "nodeName": NODE,
            "resourceClaims": [{"name": "gpu", "resourceClaimName": claim or name}],
            "containers": containers,
        },
        "status": {"phase": "Pending"},
    }


def _user(use: str, fields: dict[str, Any]) -> dict[str, Any]:
    name, _, request = use.partition("=")
    entry = {"name": "gpu"} | ({"request": request} if request else {})
    return {"name": name, "resources": {"claims": [entry]}} | fields


def _name(claim: dict[str, Any]) -> Any:
    metadata = claim["metadata"]
    return api.Claim(namespace=metadata["namespace"], name=metadata["name"], uid=metadata["uid"])
