"""
The API server reaches a port of a Pod: by the proxy over HTTP, and by a forwarded port over a WebSocket.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml
from aiohttp import web

from conformance.peers.objects import a_node, a_pod
from minicluster.client import ApiError, Client
from testbed.ports import free_port

from .test_apiserver_process import apiserver

POD = "/api/v1/namespaces/default/pods/p"


@asynccontextmanager
async def a_service() -> AsyncIterator[int]:
    """Serve HTTP on this machine during a block, and yield the port."""

    async def answer(request: web.Request) -> web.Response:
        """Tell what was asked."""
        text = f"{request.method} {request.path_qs} {(await request.read()).decode()}"
        return web.Response(text=text, status=418 if request.path == "/teapot" else 200)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", free_port())
    await site.start()
    yield int(runner.addresses[0][1])
    await runner.cleanup()


@asynccontextmanager
async def a_cluster(folder: Path, *, has_address: bool = True) -> AsyncIterator[tuple[Client, str]]:
    """Run an API server with a Pod during a block; yields a client, and the server's URL."""
    async with apiserver(folder) as (_, kubeconfig):
        server = yaml.safe_load(kubeconfig.read_text())["clusters"][0]["cluster"]["server"]
        async with Client.from_kubeconfig(kubeconfig, "t") as client:
            await client.create("/api/v1/nodes", a_node("n"))
            pod = await client.create("/api/v1/namespaces/default/pods", a_pod("p"))
            if has_address:
                status = {"phase": "Running", "podIP": "127.0.0.1"}
                await client.request("PUT", f"{POD}/status", {**pod, "status": status})
            yield client, server


async def test_proxy_answers_as_the_port_of_the_pod(tmp_path: Path) -> None:
    """Path, query, and status."""
    async with a_service() as port, a_cluster(tmp_path) as (client, server), aiohttp.ClientSession() as session:
        assert "GET /metrics?a=b " == await client.text(f"{POD}:{port}/proxy/metrics", a="b")
        async with session.post(f"{server}{POD}:{port}/proxy/teapot", data=b"body") as answer:
            assert (418, "POST /teapot body") == (answer.status, await answer.text())


@pytest.mark.parametrize(
    ("name", "has_address", "status"), [("nobody", True, 404), ("p", False, 503), ("p", True, 503)]
)
async def test_proxy_says_why_it_reaches_nothing(name: str, has_address: bool, status: int, tmp_path: Path) -> None:
    """No Pod, no address, nobody on the port."""
    async with a_cluster(tmp_path, has_address=has_address) as (client, _):
        with pytest.raises(ApiError) as caught:
            await client.text(f"/api/v1/namespaces/default/pods/{name}:{free_port()}/proxy/metrics")

    assert status == caught.value.status


async def test_forwarded_port_carries_bytes_both_ways(tmp_path: Path) -> None:
    """Each channel begins with the port, data is on the even one."""
    async with a_service() as port, a_cluster(tmp_path) as (_, server), aiohttp.ClientSession() as session:
        address = f"{server}{POD}/portforward?ports={port}"
        async with session.ws_connect(address, protocols=("v4.channel.k8s.io",)) as socket:
            number = port.to_bytes(2, "little")
            assert [b"\0" + number, b"\1" + number] == [await socket.receive_bytes(), await socket.receive_bytes()]

            await socket.send_bytes(b"\0GET /x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")

            answer = b""
            async for message in socket:
                assert b"\0" == message.data[:1]
                answer += message.data[1:]
            assert answer.endswith(b"GET /x ")


async def test_port_where_nobody_listens_is_told_on_the_channel_for_errors(tmp_path: Path) -> None:
    """The connection stays, as the kubelet keeps it."""
    async with a_cluster(tmp_path) as (_, server), aiohttp.ClientSession() as session:
        address = f"{server}{POD}/portforward?ports={free_port()}"
        async with session.ws_connect(address, protocols=("v4.channel.k8s.io",)) as socket:
            messages = [await asyncio.wait_for(socket.receive_bytes(), 10) for _ in range(3)]

    assert messages[2].startswith(b"\1an error occurred forwarding ")


async def test_port_forwarding_needs_a_pod_a_port_and_a_websocket(tmp_path: Path) -> None:
    """Each lack is a status."""
    async with a_cluster(tmp_path) as (client, _):
        found = []
        for path in (f"{POD}/portforward", f"{POD}/portforward?ports=80", f"{POD[:-1]}nobody/portforward?ports=80"):
            with pytest.raises(ApiError) as caught:
                await client.text(path)
            found.append(caught.value.status)

    assert [400, 400, 404] == found
