"""
Speak the kubelet's gRPC for dynamic resource allocation: register as a driver, serve DRAPlugin and the devices' health.

Owns two sockets: one in the kubelet's directory plugins_registry, where the kubelet finds plugins, and one in the
driver's directory, where it calls. Both have the UID of this plugin's Pod in their names, so that the next version may
serve beside this one before this one ends. `Answers` decide; a claim's error is part of an answer.
Source: https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/kubelet/pluginmanager/pluginwatcher/README.md
Source: https://github.com/kubernetes/dynamic-resource-allocation/blob/v0.37.2/kubeletplugin/draplugin.go
"""

import asyncio
import os
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import structlog

from hami_device_plugin.adapters.sockets import Add, ServedSocket, errors_of, is_served
from hami_device_plugin.decide.allocate.cdi.spec import qualified
from hami_device_plugin.decide.dra.grant import cdi_device
from hamicommon.dra.grants import ClaimGrant
from hamicommon.dra.names import DRIVER
from hamicommon.runtime.kubelet_api._proto import dra_health_v1_pb2 as health_api
from hamicommon.runtime.kubelet_api._proto import dra_health_v1_pb2_grpc as health_grpc
from hamicommon.runtime.kubelet_api._proto import dra_v1_pb2 as api
from hamicommon.runtime.kubelet_api._proto import dra_v1_pb2_grpc as api_grpc
from hamicommon.runtime.kubelet_api._proto import pluginregistration_v1_pb2 as registration
from hamicommon.runtime.kubelet_api._proto import pluginregistration_v1_pb2_grpc as registration_grpc

PLUGIN_TYPE = "DRAPlugin"
SERVICES = ("v1.DRAPlugin", "v1.DRAResourceHealth")
SOCKET_BYTES_MAX = 107
"""The longest path of a socket on Linux."""
HEALTH_SECONDS = 10.0
"""How often the kubelet hears of health that has not changed; after 30 s without word it is unknown."""
TEXT_BYTES_MAX = 4000
"""The longest error of a claim; the kubelet makes an Event of it."""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ClaimName:
    """How the kubelet names a claim."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The health of one device of the slice."""

    pool: str
    device: str
    problem: str
    """Why it is unhealthy; empty if it is healthy."""


@dataclass(frozen=True, slots=True)
class Folders:
    """The kubelet's folders that a driver uses."""

    kubelet_root: Path

    @property
    def driver(self) -> Path:
        """The driver's own."""
        return self.kubelet_root / "plugins" / DRIVER

    @property
    def registry(self) -> Path:
        """Where the kubelet finds plugins."""
        return self.kubelet_root / "plugins_registry"


class Answers(Protocol):
    """What answers the kubelet's calls. A claim has its grant, or the text of an error."""

    async def prepare(self, claims: Sequence[ClaimName]) -> Mapping[str, ClaimGrant | str]:
        """Answer NodePrepareResources: one answer for each of *claims*, by UID."""

    async def unprepare(self, claims: Sequence[ClaimName]) -> Mapping[str, str]:
        """Answer NodeUnprepareResources: the error of each of *claims*, by UID; empty if it is done."""


class DraServer(
    api_grpc.DRAPluginServicer, registration_grpc.RegistrationServicer, health_grpc.DRAResourceHealthServicer
):
    """The driver's side of both APIs, below one kubelet's directory."""

    def __init__(
        self,
        folders: Folders,
        pod_uid: str,
        answers: Answers,
        states: Callable[[], Sequence[DeviceState]],
        heard: Callable[[], object],
    ) -> None:
        """
        Serve in *folders* once started; *pod_uid* is this plugin's, empty for sockets without it.

        *states* returns the health of every device. *heard* is called when the kubelet has registered the driver.
        """
        self.path = folders.driver / (f"dra-{pod_uid}.sock" if pod_uid else "dra.sock")
        self.registration_path = _registration_path(folders.registry, pod_uid)
        self._sockets = (ServedSocket(self.registration_path), ServedSocket(self.path))
        self.is_registered = False
        self.problem = ""
        """Why the kubelet has not registered the driver, in its words."""
        self._answers = answers
        self._states = states
        self._heard = heard
        self._changed = asyncio.Event()
        """Set when the health has changed; a new event replaces it."""
        self._is_stopping = False

    async def start(self) -> None:
        """
        Start to serve, first the calls, then the registration.

        Raises:
            SocketError: a socket cannot be created.
        """
        registry, calls = self._sockets
        await _serve(
            calls,
            partial(api_grpc.add_DRAPluginServicer_to_server, self),
            partial(health_grpc.add_DRAResourceHealthServicer_to_server, self),
        )
        await _serve(registry, partial(registration_grpc.add_RegistrationServicer_to_server, self))

    async def stop(self) -> None:
        """Finish the calls in progress, and remove the sockets that are still this server's, the registration first."""
        for each in self._sockets:
            each.remove()
        self._is_stopping = True
        self.tell_health()
        for each in self._sockets:
            await each.stop()

    def is_in_place(self) -> bool:
        """Return whether both sockets are still this server's."""
        return all(each.is_in_place() for each in self._sockets)

    def is_youngest(self) -> bool:
        """Return whether no plugin that serves beside this one has started later."""
        try:
            born = self.path.stat().st_ctime_ns
            others = [path for path in self.path.parent.glob("dra*.sock") if path != self.path]
            younger = [path for path in others if path.stat().st_ctime_ns > born]
        except OSError:
            return True
        return not any(map(is_served, younger))

    def tell_health(self) -> None:
        """Send the health of the devices to the kubelet, while it listens."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def GetInfo(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Say who this is, and where it is called."""
        return registration.PluginInfo(
            type=PLUGIN_TYPE, name=DRIVER, endpoint=str(self.path), supported_versions=SERVICES
        )

    async def NotifyRegistrationStatus(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Take the kubelet's word; a kubelet that has started says it again."""
        self.is_registered, self.problem = request.plugin_registered, request.error
        if self.is_registered:
            logger.info("Registered with the kubelet", driver=DRIVER, endpoint=str(self.path))
            self._heard()
        else:
            logger.error("Not registered", driver=DRIVER, error=self.problem)
        return registration.RegistrationStatusResponse()

    async def NodePrepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Prepare each claim of the request."""
        found = await self._answers.prepare(_claims(request))
        return api.NodePrepareResourcesResponse(claims={uid: _prepared(answer) for uid, answer in found.items()})

    async def NodeUnprepareResources(self, request: Any, context: Any) -> Any:  # noqa: N802
        """Take back what was prepared for each claim of the request."""
        found = await self._answers.unprepare(_claims(request))
        answers = {uid: api.NodeUnprepareResourceResponse(error=_cut(error)) for uid, error in found.items()}
        return api.NodeUnprepareResourcesResponse(claims=answers)

    async def NodeWatchResources(self, request: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        """Send the health of all devices now, after each change and every 10 s, while the kubelet listens."""
        while not self._is_stopping:
            changed = self._changed
            yield health_message(self._states(), int(time.time()))
            with suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_SECONDS):
                    await changed.wait()


async def _serve(at: ServedSocket, *add: Add) -> None:
    with errors_of(at.path):
        at.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    await at.start(f".{secrets.token_hex(4)}", *add)  # The kubelet ignores names with a dot.


def health_message(states: Sequence[DeviceState], now_seconds: int) -> Any:
    """Return the message with the health of all devices."""
    return health_api.NodeWatchResourcesResponse(
        devices=[
            health_api.DeviceHealth(
                device=health_api.DeviceIdentifier(pool_name=state.pool, device_name=state.device),
                health=health_api.UNHEALTHY if state.problem else health_api.HEALTHY,
                last_updated_time=now_seconds,
                message=state.problem,
            )
            for state in states
        ]
    )


def _registration_path(folder: Path, pod_uid: str) -> Path:
    """Return the path of the registration socket; without the driver's name where that would be too long."""
    if not pod_uid:
        return folder / f"{DRIVER}-reg.sock"
    path = folder / f"{DRIVER}-{pod_uid}-reg.sock"
    return path if len(os.fsencode(path)) <= SOCKET_BYTES_MAX else folder / f"{pod_uid}-reg.sock"


def _claims(request: Any) -> list[ClaimName]:
    return [ClaimName(claim.namespace, claim.name, claim.uid) for claim in request.claims]


def _prepared(answer: ClaimGrant | str) -> Any:
    if isinstance(answer, str):
        return api.NodePrepareResourceResponse(error=_cut(answer))
    return api.NodePrepareResourceResponse(
        devices=[
            api.Device(
                request_names=[result.request],
                pool_name=result.pool,
                device_name=result.device,
                cdi_device_ids=[qualified(cdi_device(answer, result))],
                share_id=result.share_id or None,
            )
            for result in answer.results
        ]
    )


def _cut(text: str) -> str:
    return text.encode()[:TEXT_BYTES_MAX].decode(errors="ignore")
