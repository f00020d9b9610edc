"""
Stay registered with the kubelet.

The kubelet loses plugins: a restart removes every socket, and it may stop listening without an error.
Neighbours: `registration` decides when to register, `kubelet` registers, `service` ends the session at a restart.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import structlog

from hami_device_plugin.adapters.kubelet import KubeletError, PluginServer, register
from hami_device_plugin.adapters.sockets import is_served, socket_identity
from hami_device_plugin.decide.registration import reason_to_register
from hami_device_plugin.metrics import Metrics

POLL_SECONDS = 0.5
RETRY_SECONDS = 2.0

logger = structlog.get_logger()


class KubeletLoop:
    """The registration of one session's server."""

    def __init__(self, kubelet_socket: str, resource: str, server: PluginServer, metrics: Metrics) -> None:
        """Register *server* for *resource* at *kubelet_socket*, once `run` is awaited."""
        self._socket = Path(kubelet_socket)
        self._endpoint = server.path.name
        self._resource = resource
        self._server = server
        self._metrics = metrics
        self._registered_at: float | None = None
        self._kubelet: int | None = None
        """Identity of the kubelet's socket when it accepted the registration."""

    def problem(self) -> str | None:
        """Return why the kubelet does not hear of devices; None if it does."""
        if self._registered_at is None:
            return "not registered with the kubelet"
        return None if self._server.open_streams else "the kubelet does not listen for devices"

    async def run(self, node: Callable[[], Mapping[str, Any]], healthy_devices: Callable[[], int]) -> None:
        """
        Register whenever the kubelet does not listen; return once it has restarted.

        *node* returns the Node as last seen, *healthy_devices* the number of devices that are offered and healthy.
        """
        while not await self._has_restarted():
            reason = self._reason_to_register(node(), healthy_devices())
            if reason:
                await self._register(reason)
            await asyncio.sleep(POLL_SECONDS)

    async def _has_restarted(self) -> bool:
        """
        Return whether the kubelet has restarted, which removes every socket.

        Another plugin's socket that answers stays: one of the two plugins is about to end.
        """
        now = socket_identity(self._socket)
        if self._kubelet is not None and now not in (None, self._kubelet):
            return True
        return not self._server.is_in_place() and not await asyncio.to_thread(is_served, self._server.path)

    def _reason_to_register(self, node: Mapping[str, Any], healthy_devices: int) -> str | None:
        if not self._server.is_in_place() or socket_identity(self._socket) is None:
            return None
        allocatable = (node.get("status") or {}).get("allocatable") or {}
        return reason_to_register(
            None if self._registered_at is None else time.monotonic() - self._registered_at,
            open_streams=self._server.open_streams,
            healthy_devices=healthy_devices,
            allocatable=allocatable.get(self._resource),
        )

    async def _register(self, reason: str) -> None:
        kubelet = socket_identity(self._socket)
        try:
            await register(self._socket, self._endpoint, self._resource)
        except KubeletError as error:
            self._metrics.registrations.labels("error").inc()
            logger.warning("Not registered", error=str(error))
            await asyncio.sleep(RETRY_SECONDS)
            return
        self._metrics.registrations.labels("ok").inc()
        self._kubelet, self._registered_at = kubelet, time.monotonic()
        logger.info("Registered with the kubelet", because=reason, resource=self._resource)
