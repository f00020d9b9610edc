"""
An extender that remembers what it was asked, and a scheduler to ask it.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from minicluster.client import Client
from minicluster.kubescheduler.config import parse
from minicluster.kubescheduler.main import Scheduler

Object = dict[str, Any]

GPU = "nvidia.com/gpu"


@dataclass
class Call:
    """One request to the extender."""

    verb: str
    body: Object
    headers: list[tuple[str, str]]
    connection: int
    at: float


@dataclass
class Extender:
    """A real HTTP server that speaks the extender protocol; its answers are attributes."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    in_flight: dict[str, int] = field(default_factory=dict)
    most: dict[str, int] = field(default_factory=dict)
    """How many calls of a verb were running at once."""
    room: bool = True
    reason: Callable[[], str] = lambda: "no room"
    answers: dict[str, Any] = field(default_factory=dict)
    """Fixed answers by verb, instead of what `room` says."""
    delays: dict[str, float] = field(default_factory=dict)
    """Seconds an answer takes, by verb."""
    bind: Callable[[Object], Awaitable[None]] | None = None

    def of(self, verb: str) -> list[Call]:
        """Return the calls of one verb."""
        return [call for call in self.calls if call.verb == verb]

    async def handle(self, request: web.Request) -> web.Response:
        """Answer one call."""
        verb = request.path.strip("/")
        body = orjson.loads(await request.read())
        headers = [(name, value) for name, value in request.headers.items()]
        self.calls.append(Call(verb, body, headers, id(request.transport), time.monotonic()))
        self.in_flight[verb] = self.in_flight.get(verb, 0) + 1
        self.most[verb] = max(self.most.get(verb, 0), self.in_flight[verb])
        try:
            await asyncio.sleep(self.delays.get(verb, 0.0))
            return web.json_response(await self._answer(verb, body))
        finally:
            self.in_flight[verb] -= 1

    async def _answer(self, verb: str, body: Object) -> Any:
        if verb in self.answers:
            return self.answers[verb]
        if verb == "bind":
            if self.bind is not None:
                await self.bind(body)
            return {"Error": ""}
        if verb == "prioritize":
            return [{"Host": name, "Score": 0} for name in body["NodeNames"]]
        names = body["NodeNames"] or [node["metadata"]["name"] for node in body["Nodes"]["items"]]
        if self.room:
            return {"NodeNames": names[:1]}
        return {"NodeNames": [], "FailedNodes": dict.fromkeys(names, self.reason())}


@contextlib.asynccontextmanager
async def extender() -> AsyncIterator[Extender]:
    """Yield an extender that listens."""
    peer = Extender()
    application = web.Application()
    application.router.add_post("/{verb}", peer.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield peer
    await runner.cleanup()


def configured(url: str = "", **fields: Any) -> Object:
    """Return a configuration, with an extender at *url* for GPU Pods where one is given."""
    made: Object = {"profiles": [{"schedulerName": "default-scheduler"}], "leaderElection": {"leaderElect": False}}
    if url:
        made["extenders"] = [
            {
                "urlPrefix": url,
                "filterVerb": "filter",
                "bindVerb": "bind",
                "nodeCacheCapable": True,
                "managedResources": [{"name": GPU, "ignoredByScheduler": True}],
                **fields,
            }
        ]
    return made


@contextlib.asynccontextmanager
async def scheduling(server: str, configuration: Object) -> AsyncIterator[None]:
    """Run a scheduler until the block ends."""
    async with Client(server, "kube-scheduler") as client:
        task = asyncio.create_task(Scheduler(client, parse(configuration)).run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def asking(amount: int = 1, **limits: Any) -> Object:
    """Return a Pod spec that asks for GPUs."""
    return {"containers": [{"name": "main", "image": "i", "resources": {"limits": {GPU: amount, **limits}}}]}
