"""
Reach a port of a Pod through the API server: `pods/proxy` and `pods/portforward`.

The proxy speaks HTTP to the Pod's address, and forwarding connects to its loopback, as the kubelet does. All Pods are
processes on this machine, so both addresses are its own, which the real API server's proxy would refuse.
Source: k8s.io/kubernetes/pkg/registry/core/pod/rest/subresources.go, k8s.io/kubelet/pkg/cri/streaming/portforward
(websocket.go); measured on kube-apiserver 1.34.4.
"""

import asyncio
import re
from contextlib import suppress
from typing import Final

import aiohttp
from aiohttp import web

from hamicommon.model import Object
from minicluster.apiserver.api import errors
from minicluster.apiserver.api.resources import PODS
from minicluster.apiserver.serve.requests import Target
from minicluster.apiserver.serve.verbs import Verbs

PROXY: Final = re.compile(r"/api/v1/namespaces/([^/]+)/pods/([^/:]+)(?::(\d+))?/proxy(/.*)?")
PROTOCOL: Final = "v4.channel.k8s.io"
PIECE_BYTES: Final = 32 * 1024
HTTP_PORT: Final = 80
_HOP_BY_HOP: Final = {"connection", "host", "transfer-encoding", "content-length", "content-encoding"}


class Forwarding:
    """The connections to Pods."""

    def __init__(self, verbs: Verbs) -> None:
        self._verbs = verbs
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections of the proxy."""
        if self._session is not None:
            await self._session.close()

    async def proxy(self, request: web.BaseRequest, place: re.Match[str]) -> web.StreamResponse:
        """
        Answer as the port of the Pod answers; *place* is a match of `PROXY`.

        Raises: StatusError 404 without the Pod, 503 if nothing answers.
        """
        namespace, name, port, path = place.groups()
        address = (self._pod(namespace, name).get("status") or {}).get("podIP")
        if not address:
            raise errors.StatusError(503, "ServiceUnavailable", f"no endpoints available for pod {name!r}")
        url = f"http://{address}:{port or HTTP_PORT}{path or '/'}"
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30), auto_decompress=False)
        headers = {key: value for key, value in request.headers.items() if key.lower() not in _HOP_BY_HOP}
        content = await request.read()
        try:
            async with self._session.request(
                request.method, url, params=request.query, headers=headers, data=content or None
            ) as answer:
                kept = {"Content-Type": answer.content_type}
                if "Content-Encoding" in answer.headers:
                    kept["Content-Encoding"] = answer.headers["Content-Encoding"]
                return web.Response(status=answer.status, body=await answer.read(), headers=kept)
        except (aiohttp.ClientError, TimeoutError) as error:
            text = f"error trying to reach service: {error}"
            raise errors.StatusError(503, "ServiceUnavailable", text) from error

    async def forward(self, request: web.BaseRequest, target: Target) -> web.StreamResponse:
        """
        Forward the ports of the query over a WebSocket: for each two channels, for data and for one error.

        Raises: StatusError 404 without the Pod, 400 without a port or a WebSocket.
        """
        self._pod(target.namespace, target.name)
        ports = [int(port) for text in request.query.getall("ports", []) for port in text.split(",") if port.isdigit()]
        if not ports:
            raise errors.bad_request('query parameter "port" is required')
        socket = web.WebSocketResponse(protocols=(PROTOCOL,), compress=False)
        if not socket.can_prepare(request):
            raise errors.bad_request("Upgrade request required")
        await socket.prepare(request)
        forwarded = [_Port(socket, 2 * number, port) for number, port in enumerate(ports)]
        try:
            for port in forwarded:
                await port.open()
            async for message in socket:
                if message.type is aiohttp.WSMsgType.BINARY and message.data:
                    await forwarded[message.data[0] // 2].write(message.data[1:])
        finally:
            for port in forwarded:
                port.close()
        return socket

    def _pod(self, namespace: str, name: str) -> Object:
        return self._verbs.read(Target(PODS, namespace, name, "")).load()


class _Port:
    """One forwarded port."""

    def __init__(self, socket: web.WebSocketResponse, channel: int, port: int) -> None:
        self._socket = socket
        self._channel = channel
        self._port = port
        self._writer: asyncio.StreamWriter | None = None
        self._reading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Announce both channels, and connect; a failure goes to the channel for errors."""
        for channel in (self._channel, self._channel + 1):
            await self._send(channel, self._port.to_bytes(2, "little"))
        try:
            reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError as error:
            text = f"an error occurred forwarding {self._port}: {error}"
            await self._send(self._channel + 1, text.encode())
            return
        self._reading = asyncio.create_task(self._pump(reader))

    async def write(self, data: bytes) -> None:
        """Send *data* to the port."""
        if self._writer is not None:
            with suppress(ConnectionError):
                self._writer.write(data)
                await self._writer.drain()

    def close(self) -> None:
        """Close the connection."""
        if self._reading is not None:
            self._reading.cancel()
        if self._writer is not None:
            self._writer.close()

    async def _pump(self, reader: asyncio.StreamReader) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(PIECE_BYTES):
                await self._send(self._channel, data)
        await self._socket.close()

    async def _send(self, channel: int, data: bytes) -> None:
        await self._socket.send_bytes(bytes((channel,)) + data)
