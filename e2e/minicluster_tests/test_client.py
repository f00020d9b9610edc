"""The client of the parts of the cluster, where the API server is not well."""

import asyncio

import pytest
from aiohttp import web

from minicluster import client
from minicluster.client import ApiError, Client


async def test_watch_that_falls_silent_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection may be gone without a word, and nobody would look again."""
    monkeypatch.setattr(client, "WATCH_SILENCE_SECONDS", 0.2)
    is_over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'{"type":"BOOKMARK","object":{}}\n')
        await is_over.wait()
        return response

    app = web.Application()
    app.router.add_get("/api/v1/pods", answer)
    runner = web.AppRunner(app, shutdown_timeout=0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    seen = []
    try:
        [address] = runner.addresses
        async with Client(f"http://127.0.0.1:{address[1]}", "test") as watching:
            events = watching.watch("/api/v1/pods", "1")
            seen.append(await anext(events))
            with pytest.raises(ApiError, match="watch /api/v1/pods"):
                await anext(events)
    finally:
        is_over.set()
        await runner.cleanup()

    assert [("BOOKMARK", {})] == seen
