"""
The reflector against a real server that fails like an API server, a proxy or a disk.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hamicommon.runtime.api import reflector
from hamicommon.runtime.api.kube import Kube, Reflector
from hamicommon.runtime.api.reflector import Backoff
from testbed.waiting import eventually

PATH = "/api/v1/pods"

Script = Callable[["ApiServer", web.StreamResponse], Awaitable[None]]


def a_pod(name: str, version: int = 1, **fields: Any) -> dict[str, Any]:
    """Return a Pod with as little in it as a Pod can have."""
    return {"metadata": {"name": name, "resourceVersion": str(version)}, **fields}


class ApiServer:
    """Serves one collection; each watch runs the next script, then stays open."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.version = 10
        self.list_failures: list[web.Response] = []
        self.expire_continue_tokens = False
        self.scripts: list[Script] = []
        self.lists = 0
        self.watch_versions: list[str] = []
        self.queries: list[dict[str, str]] = []
        self.port = 0
        self._runner: web.AppRunner | None = None
        self._open: set[asyncio.Queue[bytes]] = set()

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get(PATH, self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        assert self._runner is not None
        self.tell(b"")
        await self._runner.cleanup()

    def change(self, kind: str, pod: dict[str, Any]) -> bytes:
        """Change the collection and return the event of the change."""
        self.version += 1
        pod = {**pod, "metadata": {**pod["metadata"], "resourceVersion": str(self.version)}}
        if kind == "DELETED":
            self.pods.pop(pod["metadata"]["name"], None)
        else:
            self.pods[pod["metadata"]["name"]] = pod
        return orjson.dumps({"type": kind, "object": pod}) + b"\n"

    def tell(self, line: bytes) -> None:
        """Send *line* on every open watch."""
        for queue in self._open:
            queue.put_nowait(line)

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self.queries.append(dict(request.query))
        return await (self._watch(request) if "watch" in request.query else self._list(request))

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.lists += 1
        if self.list_failures:
            return self.list_failures.pop(0)
        names = sorted(self.pods)
        start, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        if start and self.expire_continue_tokens:
            return web.json_response({"code": 410, "reason": "Expired", "message": "too old"}, status=410)
        page = names[start : start + limit] if limit else names
        following = start + len(page)
        metadata = {"resourceVersion": str(self.version)}
        if following < len(names):
            metadata["continue"] = str(following)
        return web.json_response({"metadata": metadata, "items": [self.pods[name] for name in page]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        self.watch_versions.append(request.query["resourceVersion"])
        response = web.StreamResponse()
        if self.scripts:
            script = self.scripts.pop(0)
            if script is refuse_gone:
                return web.json_response({"code": 410, "reason": "Gone", "message": "too old"}, status=410)
            await response.prepare(request)
            await script(self, response)
            return response
        await response.prepare(request)
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        self._open.add(queue)
        try:
            while line := await queue.get():
                await response.write(line)
        finally:
            self._open.discard(queue)
        cut(response)
        return response


def cut(response: web.StreamResponse) -> None:
    """Break the connection as a killed server does."""
    transport = response._req.transport  # type: ignore[union-attr]
    assert transport is not None
    transport.abort()


async def refuse_gone(_server: ApiServer, _response: web.StreamResponse) -> None:
    """Marks a watch that is rejected with 410."""


async def end_at_once(_server: ApiServer, _response: web.StreamResponse) -> None:
    """End politely without an event."""


async def cut_at_once(_server: ApiServer, response: web.StreamResponse) -> None:
    cut(response)


async def garbage(_server: ApiServer, response: web.StreamResponse) -> None:
    await response.write(b"this is not JSON\n")


async def wrong_shape(_server: ApiServer, response: web.StreamResponse) -> None:
    await response.write(b'{"type":"ADDED","object":[]}\n')


async def cut_in_mid_line(server: ApiServer, response: web.StreamResponse) -> None:
    await response.write(server.change("ADDED", a_pod("half"))[:-20])
    await asyncio.sleep(0.01)
    cut(response)


async def end_in_mid_line(server: ApiServer, response: web.StreamResponse) -> None:
    await response.write(server.change("ADDED", a_pod("half"))[:-20])


async def error_gone(_server: ApiServer, response: web.StreamResponse) -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
    await response.write(orjson.dumps({"type": "ERROR", "object": status}) + b"\n")


async def error_internal(_server: ApiServer, response: web.StreamResponse) -> None:
    await response.write(b'{"type":"ERROR","object":{"code":500,"reason":"InternalError","message":"etcd"}}\n')


async def missed_change(server: ApiServer, response: web.StreamResponse) -> None:
    """Change the collection without an event, then break."""
    server.change("ADDED", a_pod("missed"))
    cut(response)


class Mirror:
    """The copy that the callbacks made."""

    def __init__(self, kube: Kube, **options: Any) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.upserted: list[str] = []
        self.deleted: list[str] = []
        options.setdefault("backoff", Backoff(0.005, 0.02))
        self.reflector = Reflector(
            kube, PATH, replace=self._replace, upsert=self._upsert, delete=self._delete, **options
        )

    def _replace(self, pods: list[dict[str, Any]]) -> None:
        self.pods = {pod["metadata"]["name"]: pod for pod in pods}

    def _upsert(self, pod: dict[str, Any]) -> None:
        self.upserted.append(pod["metadata"]["name"])
        self.pods[pod["metadata"]["name"]] = pod

    def _delete(self, pod: dict[str, Any]) -> None:
        self.deleted.append(pod["metadata"]["name"])
        self.pods.pop(pod["metadata"]["name"], None)


def write_kubeconfig(folder: Path, server: str) -> str:
    """Write the smallest kubeconfig that names *server*."""
    path = folder / "kubeconfig"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{server}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    )
    return str(path)


@asynccontextmanager
async def reflecting(server: ApiServer, folder: Path, **options: Any) -> AsyncIterator[Mirror]:
    """Run a reflector against *server*."""
    await server.start()
    try:
        async with await Kube.connect(write_kubeconfig(folder, f"http://127.0.0.1:{server.port}"), "test/1") as kube:
            mirror = Mirror(kube, **options)
            task = asyncio.create_task(mirror.reflector.run())
            try:
                yield mirror
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
    finally:
        await server.stop()


async def test_every_page_of_the_list_reaches_replace_at_once(tmp_path: Path) -> None:
    """The callback gets a list longer than a page as one list."""
    server = ApiServer()
    server.pods = {f"p{index:04}": a_pod(f"p{index:04}") for index in range(1203)}
    async with reflecting(server, tmp_path) as mirror:
        await mirror.reflector.synced.wait()

        assert server.pods.keys() == mirror.pods.keys()
        assert 3 == server.lists


async def test_a_list_whose_snapshot_expires_is_asked_for_whole(tmp_path: Path) -> None:
    """A continue token that is too old costs one more request, not the list."""
    server = ApiServer()
    server.pods = {f"p{index:04}": a_pod(f"p{index:04}") for index in range(600)}
    server.expire_continue_tokens = True
    async with reflecting(server, tmp_path) as mirror:
        await mirror.reflector.synced.wait()

        assert 600 == len(mirror.pods)


async def test_changes_reach_their_callbacks_in_order(tmp_path: Path) -> None:
    """Added and modified objects are upserted, deleted ones deleted with their last state."""
    server = ApiServer()
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)
        server.tell(server.change("ADDED", a_pod("a")))
        server.tell(server.change("MODIFIED", a_pod("a", spec={"nodeName": "n1"})))
        server.tell(server.change("ADDED", a_pod("b")) + server.change("DELETED", a_pod("b")))
        await eventually(lambda: mirror.deleted == ["b"])

        assert {"nodeName": "n1"} == mirror.pods["a"]["spec"]
        assert ["a"] == list(mirror.pods)


async def test_an_event_larger_than_the_http_buffers_arrives_whole(tmp_path: Path) -> None:
    """Pods may be larger than a megabyte, and their events larger than any line reader's limit."""
    server = ApiServer()
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)
        server.tell(server.change("ADDED", a_pod("big", note="x" * 5_000_000)))
        await eventually(lambda: "big" in mirror.pods)

        assert 5_000_000 == len(mirror.pods["big"]["note"])


async def test_the_next_watch_begins_where_the_bookmark_said(tmp_path: Path) -> None:
    """A bookmark moves the version without an object, so a quiet collection never grows too old."""

    async def bookmark(_server: ApiServer, response: web.StreamResponse) -> None:
        await response.write(b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"777"}}}\n')

    server = ApiServer()
    server.scripts = [bookmark]
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server.watch_versions) == 2)

        assert ["10", "777"] == server.watch_versions
        assert (1, 0) == (server.lists, mirror.reflector.restarts)


@pytest.mark.parametrize(
    "fault",
    [
        refuse_gone,
        error_gone,
        error_internal,
        garbage,
        wrong_shape,
        cut_at_once,
        cut_in_mid_line,
        end_in_mid_line,
        missed_change,
    ],
)
async def test_any_fault_of_a_watch_ends_in_a_new_list(fault: Script, tmp_path: Path) -> None:
    """Whatever was missed while the watch was broken is in the list that follows."""
    server = ApiServer()
    server.scripts = [fault]
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)

        assert server.pods == mirror.pods
        assert 1 == mirror.reflector.restarts


async def test_half_an_event_is_never_delivered(tmp_path: Path) -> None:
    """An incomplete object is ignored."""
    server = ApiServer()
    server.scripts = [cut_in_mid_line, end_in_mid_line]
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)

        assert [] == mirror.upserted


async def test_a_server_that_fails_is_asked_again_after_a_wait(tmp_path: Path) -> None:
    """The reflector retries after errors of the list, with growing waiting times."""
    server = ApiServer()
    server.pods = {"a": a_pod("a")}
    server.list_failures = [web.json_response({"reason": "InternalError"}, status=500) for _ in range(6)]
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)

        assert ["a"] == list(mirror.pods)
        assert 7 == server.lists


async def test_retry_after_is_obeyed(tmp_path: Path) -> None:
    """A server's Retry-After is respected."""
    server = ApiServer()
    server.list_failures = [web.Response(status=429, headers={"Retry-After": "1"})]
    async with reflecting(server, tmp_path) as mirror:
        began = asyncio.get_running_loop().time()
        await mirror.reflector.synced.wait()

        assert asyncio.get_running_loop().time() - began >= 1.0


async def test_watches_that_end_at_once_do_not_become_a_busy_loop(tmp_path: Path) -> None:
    """A watch that ends at once is not repeated without waiting."""
    server = ApiServer()
    server.scripts = [end_at_once] * 1000
    async with reflecting(server, tmp_path, backoff=Backoff(0.1, 0.1)):
        await asyncio.sleep(0.6)

        assert 2 <= len(server.watch_versions) <= 12


async def test_watches_that_end_after_one_event_do_not_become_a_busy_loop(tmp_path: Path) -> None:
    """Nor is it if it had an event before."""

    async def one_event(server: ApiServer, response: web.StreamResponse) -> None:
        await response.write(server.change("MODIFIED", a_pod("a")))

    server = ApiServer()
    server.scripts = [one_event] * 1000
    async with reflecting(server, tmp_path, backoff=Backoff(0.1, 0.1)):
        await asyncio.sleep(0.6)

        assert 2 <= len(server.watch_versions) <= 12


async def test_a_long_watch_that_is_cut_is_resumed_without_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A proxy that ends idle connections costs one request; a server that stays broken costs a list."""
    monkeypatch.setattr(reflector, "LONG_WATCH_SECONDS", 0.0)

    async def event_then_cut(server: ApiServer, response: web.StreamResponse) -> None:
        await response.write(server.change("ADDED", a_pod("a")))
        await asyncio.sleep(0.05)
        cut(response)

    server = ApiServer()
    server.scripts = [event_then_cut]
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)
        assert (["10", "11"], 0) == (server.watch_versions, mirror.reflector.restarts)

    server.scripts = [cut_at_once, cut_at_once]
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)
        assert 1 == mirror.reflector.restarts


async def test_faults_that_repeat_do_not_become_a_busy_loop(tmp_path: Path) -> None:
    """Nor is a watch that breaks."""
    server = ApiServer()
    server.scripts = [cut_at_once] * 1000
    async with reflecting(server, tmp_path, backoff=Backoff(0.1, 0.1)):
        await asyncio.sleep(0.6)

        assert 2 <= len(server.watch_versions) <= 12


async def test_a_server_that_was_killed_is_found_again(tmp_path: Path) -> None:
    """Changes during an outage are in the copy soon after the server is back."""
    server = ApiServer()
    server.pods = {"a": a_pod("a")}
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)
        await server.stop()
        server.change("ADDED", a_pod("b"))
        await asyncio.sleep(0.05)
        await server.start()
        await eventually(lambda: "b" in mirror.pods)

        assert server.pods == mirror.pods


async def test_a_callback_that_fails_ends_the_reflector(tmp_path: Path) -> None:
    """A bug in a callback must not be retried silently for ever."""
    server = ApiServer()
    await server.start()

    def broken(_pods: list[dict[str, Any]]) -> None:
        raise ZeroDivisionError

    try:
        async with await Kube.connect(write_kubeconfig(tmp_path, f"http://127.0.0.1:{server.port}"), "t/1") as kube:
            reflector = Reflector(kube, PATH, replace=broken, upsert=lambda _: None, delete=lambda _: None)
            with pytest.raises(ZeroDivisionError):
                await reflector.run()
    finally:
        await server.stop()


async def test_selectors_travel_with_list_and_watch(tmp_path: Path) -> None:
    """Both requests ask for the same objects."""
    server = ApiServer()
    async with reflecting(server, tmp_path, field_selector="spec.nodeName=n1", label_selector="a in (b,c)"):
        await eventually(lambda: len(server.queries) == 2)

        assert [("spec.nodeName=n1", "a in (b,c)")] * 2 == [
            (query["fieldSelector"], query["labelSelector"]) for query in server.queries
        ]


async def test_age_tells_since_when_the_server_is_silent(tmp_path: Path) -> None:
    """Infinite before the first list, small after an event."""
    server = ApiServer()
    server.list_failures = [web.Response(status=500)]
    async with reflecting(server, tmp_path, backoff=Backoff(0.2, 0.2)) as mirror:
        assert float("inf") == mirror.reflector.age_seconds()
        await mirror.reflector.synced.wait()
        assert mirror.reflector.age_seconds() < 1.0


def test_waiting_times_double_and_stay_below_the_last() -> None:
    """Each wait is drawn from the upper half of its step."""
    backoff = Backoff(1.0, 8.0)
    waits = [backoff.next_seconds() for _ in range(6)]

    for ceiling, wait in zip([1, 2, 4, 8, 8, 8], waits, strict=True):
        assert ceiling / 2 <= wait <= ceiling
    backoff.reset()
    assert backoff.next_seconds() <= 1.0
    assert 30.0 == backoff.next_seconds(at_least=30.0)


FAULTS = [end_at_once, cut_at_once, garbage, wrong_shape, cut_in_mid_line, error_gone, error_internal, missed_change]


@pytest.mark.property
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from([*FAULTS, refuse_gone]), max_size=6))
async def test_the_copy_equals_the_collection_after_any_faults(tmp_path: Path, faults: list[Script]) -> None:
    """After any failures of watches, the copy is right in the end."""
    server = ApiServer()
    server.pods = {"first": a_pod("first")}
    server.scripts = list(faults)
    async with reflecting(server, tmp_path) as mirror:
        await eventually(lambda: len(server._open) == 1)
        server.tell(server.change("ADDED", a_pod("last")))
        await eventually(lambda: server.pods == mirror.pods)
