"""
The HTTP server over real sockets: health, metrics, limits.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Counter
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from structlog.testing import capture_logs

from hamicommon.runtime.serving import http
from hamicommon.runtime.serving.http import ServeError, application, read_body, serve, split_address
from hamicommon.runtime.serving.samples import PAUSE


def an_application(**options: object) -> web.Application:
    """Return an application with nothing but what every service has."""
    return application("svc", "1.2.3", registry=CollectorRegistry(), **options)  # type: ignore[arg-type]


@asynccontextmanager
async def asking(app: web.Application) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    """Serve *app* and yield a client and the URL."""
    server = await serve(app, "127.0.0.1:0")
    try:
        async with aiohttp.ClientSession() as session:
            yield session, f"http://127.0.0.1:{server.port}"
    finally:
        await server.close()


async def test_every_service_answers_about_itself() -> None:
    """Health, version and metrics are there without anything being added."""
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    async with asking(application("svc", "1.2.3", registry=registry)) as (session, url):
        for path in ("/livez", "/readyz", "/healthz"):
            async with session.get(url + path) as response:
                assert (200, "ok\n") == (response.status, await response.text())
        async with session.get(url + "/version") as response:
            assert "1.2.3" == (await response.json())["version"]
        async with session.get(url + "/metrics") as response:
            assert "things_total 1.0" in await response.text()
            assert "text/plain" == response.content_type


@pytest.mark.parametrize("accepted", ["gzip", "identity"])
async def test_metrics_are_compressed_for_a_client_that_accepts_it(accepted: str) -> None:
    """Prometheus does; the lines of a scrape differ in a few characters."""
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    async with (
        asking(application("svc", "1.2.3", registry=registry)) as (session, url),
        session.get(url + "/metrics", headers={"Accept-Encoding": accepted}) as response,
    ):
        assert "things_total 1.0" in await response.text()
        assert ("gzip" if accepted == "gzip" else None) == response.headers.get("Content-Encoding")


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text;version=1.0.0"])
async def test_metrics_have_the_process_and_no_time_of_creation(accept: str) -> None:
    """An operator sees memory and processor time of each service. A second series for each counter is noise."""
    registry = CollectorRegistry()
    Counter("things", "Things.", registry=registry).inc()
    async with (
        asking(application("svc", "1.2.3", registry=registry)) as (session, url),
        session.get(url + "/metrics", headers={"Accept": accept}) as response,
    ):
        names = {line.split()[0] for line in (await response.text()).splitlines() if not line.startswith("#")}

    assert {"process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"} <= names
    assert [] == [name for name in names if name.endswith("_created")]


class Families(Collector):
    """Families that a function makes at each scrape."""

    def __init__(self, make: Callable[[], Iterator[Metric]]) -> None:
        self.collect = make  # type: ignore[method-assign]

    def collect(self) -> Iterator[Metric]:  # pragma: no cover
        """Be replaced."""
        return iter(())


def a_registry(make: Callable[[], Iterator[Metric]]) -> CollectorRegistry:
    """Return a registry of what *make* yields."""
    registry = CollectorRegistry()
    registry.register(Families(make))
    return registry


async def answered_meanwhile(registry: CollectorRegistry, accepted: str = "identity") -> int:
    """Return how many other requests are answered during a scrape."""
    count = 0
    async with asking(application("svc", "1.2.3", registry=registry)) as (session, url):

        async def scrape() -> None:
            async with session.get(url + "/metrics", headers={"Accept-Encoding": accepted}) as response:
                assert 200 == response.status
                await response.read()

        scraping = asyncio.create_task(scrape())
        while not scraping.done():
            async with session.get(url + "/livez"):
                count += 1
        await scraping
    return count


async def test_others_are_answered_while_metrics_are_collected() -> None:
    """A collector that pauses lets a decision go first."""

    def make() -> Iterator[Metric]:
        for _ in range(200):
            time.sleep(0.001)
            yield PAUSE
        yield GaugeMetricFamily("things", "Things.", value=1)

    assert await answered_meanwhile(a_registry(make)) > 10


@pytest.mark.parametrize("accepted", ["identity", "gzip"])
async def test_others_are_answered_while_metrics_are_written(accepted: str) -> None:
    """To format some hundred thousand series takes a second. Other requests do not wait for it."""
    family = GaugeMetricFamily("things", "Things.", labels=["n"])
    for number in range(100_000):
        family.add_metric([str(number)], number)

    assert await answered_meanwhile(a_registry(lambda: iter([family])), accepted) > 20


async def test_scrapes_at_once_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients at other addresses share an answer, in each form they ask for."""
    monkeypatch.setattr(http, "SCRAPE_SECONDS", 60)
    collected: list[int] = []

    def make() -> Iterator[Metric]:
        collected.append(1)
        yield GaugeMetricFamily("things", "Things.", value=len(collected))

    answers = []
    server = await serve(application("svc", "1", registry=a_registry(make)), "127.0.0.1:0")
    for number, accepted in enumerate(["gzip", "identity", "gzip", "identity"], 2):
        connector = aiohttp.TCPConnector(local_addr=(f"127.0.0.{number}", 0))
        headers = {"Accept-Encoding": accepted}
        async with (
            aiohttp.ClientSession(connector=connector, headers=headers) as session,
            session.get(f"http://127.0.0.1:{server.port}/metrics") as response,
        ):
            answers.append("things 1.0" in await response.text())
    await server.close()

    assert [True] * 4 == answers
    assert [1] == collected


async def test_applications_of_one_registry_share_its_scrapes() -> None:
    """A service has its metrics at several addresses: that is no way to have them computed more often, or doubled."""
    registry = CollectorRegistry()
    first, second = (application("svc", "1", registry=registry) for _ in range(2))
    async with asking(first) as (session, url), asking(second), session.get(url + "/metrics") as response:
        assert 1 == (await response.text()).count("\nprocess_cpu_seconds_total ")


async def test_a_peer_that_scrapes_without_pause_gets_one_new_answer_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It waits for the next, which is never one that it has had."""
    monkeypatch.setattr(http, "SCRAPE_SECONDS", 0.3)
    collected: list[int] = []

    def make() -> Iterator[Metric]:
        collected.append(1)
        yield GaugeMetricFamily("things", "Things.", value=len(collected))

    began, seen = time.monotonic(), []
    async with asking(application("svc", "1", registry=a_registry(make))) as (session, url):
        for _ in range(4):
            async with session.get(url + "/metrics") as response:
                text = await response.text()
                seen.append(text.partition("\nthings ")[2].partition("\n")[0])

    assert ["1.0", "2.0", "3.0", "4.0"] == seen
    assert 0.9 <= time.monotonic() - began


async def test_scrapes_that_wait_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are closed first if the connections are too many."""
    monkeypatch.setattr(http, "SCRAPE_SECONDS", 60)
    server = await serve(an_application(), "127.0.0.1:0", max_connections=3)
    writers = []
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
        writers.append(writer)
        await asyncio.sleep(0.05)
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{server.port}/livez") as response:
        assert 200 == response.status
    for writer in writers:
        writer.close()
    await asyncio.sleep(0.05)
    await server.close()


async def test_a_probe_says_why_not() -> None:
    """The body has the reason, so that `kubectl describe pod` shows it."""
    reasons: list[str | None] = ["not synced yet"]
    async with asking(an_application(ready=lambda: reasons[-1])) as (session, url):
        async with session.get(url + "/readyz") as response:
            assert (503, "not synced yet\n") == (response.status, await response.text())
        reasons.append(None)
        async with session.get(url + "/readyz") as response:
            assert 200 == response.status


async def test_a_bug_in_a_handler_is_one_request_answered_with_500() -> None:
    """The answer is plain text without internals, and the server continues."""

    async def broken(_request: web.Request) -> web.StreamResponse:
        raise ZeroDivisionError("secret")

    app = an_application()
    app.router.add_get("/broken", broken)
    async with asking(app) as (session, url):
        async with session.get(url + "/broken") as response:
            assert 500 == response.status
            assert "secret" not in await response.text()
            assert "text/plain" == response.content_type
        async with session.get(url + "/livez") as response:
            assert 200 == response.status


async def test_a_body_beyond_the_limit_is_413() -> None:
    """A client cannot make a service hold more than its limit."""

    async def take(request: web.Request) -> web.StreamResponse:
        return web.Response(text=str(len(await read_body(request))))

    app = an_application(max_body_bytes=1000)
    app.router.add_post("/take", take)
    async with asking(app) as (session, url):
        async with session.post(url + "/take", data=b"x" * 999) as response:
            assert "999" == await response.text()
        async with session.post(url + "/take", data=b"x" * 1001) as response:
            assert 413 == response.status


async def exchange(port: int, request: bytes, *, is_hanging_up: bool = False) -> bytes:
    """Send *request* as it is and return the answer, empty if the server closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    await writer.drain()
    if is_hanging_up:
        await asyncio.sleep(0.05)
        writer.close()
        return b""
    answer = await reader.read(1000)
    writer.close()
    return answer


POST = b"POST /take HTTP/1.1\r\nHost: h\r\nConnection: close\r\n"
BROKEN = {
    "no chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\nzz\r\n", b"400 Bad Request"),
    "overlong header": (POST + b"X: " + b"a" * 10_000 + b"\r\n\r\n", b"400 Bad Request"),
    "no header": (POST + b"nonsense\r\n\r\n", b"400 Bad Request"),
    "half a body": (POST + b"Content-Length: 20\r\n\r\n{}", b""),
}


@pytest.mark.parametrize("case", BROKEN)
async def test_what_a_peer_does_wrong_is_400_and_one_debug_line(case: str, caplog: pytest.LogCaptureFixture) -> None:
    """A client cannot fill the log with tracebacks."""
    ended: list[str] = []

    async def take(request: web.Request) -> web.StreamResponse:
        try:
            return web.Response(text=str(len(await read_body(request))))
        except web.HTTPException as error:
            ended.append(f"{error.status} {error.reason}")
            raise

    app = an_application()
    app.router.add_post("/take", take)
    request, status = BROKEN[case]
    server = await serve(app, "127.0.0.1:0")
    with capture_logs() as lines:
        answer = await exchange(server.port, request, is_hanging_up=not status)
        await asyncio.sleep(0.05)
        await server.close()

    assert status in answer
    assert ended in ([], ["400 Bad Request"])
    assert ["debug"] == [line["log_level"] for line in lines]
    assert "\n" not in lines[0]["reason"]
    assert [] == [record for record in caplog.records if record.exc_info]


async def test_a_fault_of_ours_that_aiohttp_tells_keeps_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    """Only errors of clients are left out."""

    async def answers_nothing(_request: web.Request) -> web.StreamResponse:
        return None  # type: ignore[return-value]

    app = an_application()
    app.router.add_get("/nothing", answers_nothing)
    async with asking(app) as (session, url), session.get(url + "/nothing") as response:
        assert 500 == response.status
    assert "Missing return statement" in caplog.text


async def test_a_request_in_progress_is_finished_before_the_server_closes() -> None:
    """Draining loses no request."""
    entered = asyncio.Event()

    async def slow(_request: web.Request) -> web.StreamResponse:
        entered.set()
        await asyncio.sleep(0.2)
        return web.Response(text="done")

    app = an_application()
    app.router.add_get("/slow", slow)
    server = await serve(app, "127.0.0.1:0")
    async with aiohttp.ClientSession() as session:

        async def ask() -> str:
            async with session.get(f"http://127.0.0.1:{server.port}/slow") as response:
                return await response.text()

        asked = asyncio.create_task(ask())
        await entered.wait()
        await server.close()
        assert "done" == await asked


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    """Two servers at one address is a mistake of configuration."""
    first = await serve(an_application(), "127.0.0.1:0")
    try:
        with pytest.raises(
            ServeError, match=f"^--x 127.0.0.1:{first.port}: cannot listen there: Address already in use"
        ):
            await serve(an_application(), f"127.0.0.1:{first.port}", flag="--x")
    finally:
        await first.close()


@pytest.mark.parametrize("address", ["", "host", "host:", "host:x", "host:65536", "::1:80", "1.2.3.4:-1"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """The message says what an address looks like."""
    with pytest.raises(ServeError, match="is not host:port"):
        split_address(address)


async def test_an_address_that_is_none_names_its_flag() -> None:
    """The error names the flag, which the operator knows."""
    with pytest.raises(ServeError, match=r"^--http_bind '8080' is not host:port with a port of 0 to 65535$"):
        await serve(an_application(), "8080", flag="--http_bind")
