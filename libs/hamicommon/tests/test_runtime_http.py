"""
The HTTP server over real sockets: health, metrics, limits, certificates that change while it serves.
"""

import asyncio
import datetime
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry, Counter

from hamicommon.runtime.http import Certificate, ServeError, TlsFiles, application, read_body, serve, split_address


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


async def test_a_probe_says_why_not() -> None:
    """What is wrong is the body, so `kubectl describe pod` shows it."""
    reasons: list[str | None] = ["not synced yet"]
    async with asking(an_application(ready=lambda: reasons[-1])) as (session, url):
        async with session.get(url + "/readyz") as response:
            assert (503, "not synced yet\n") == (response.status, await response.text())
        reasons.append(None)
        async with session.get(url + "/readyz") as response:
            assert 200 == response.status


async def test_a_bug_in_a_handler_is_one_request_answered_with_500() -> None:
    """The answer is plain text without internals, and the server goes on."""

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
    """Nobody can make a service hold more than it said."""

    async def take(request: web.Request) -> web.StreamResponse:
        return web.Response(text=str(len(await read_body(request))))

    app = an_application(max_body_bytes=1000)
    app.router.add_post("/take", take)
    async with asking(app) as (session, url):
        async with session.post(url + "/take", data=b"x" * 999) as response:
            assert "999" == await response.text()
        async with session.post(url + "/take", data=b"x" * 1001) as response:
            assert 413 == response.status


async def test_a_request_in_progress_is_finished_before_the_server_closes() -> None:
    """Draining loses nothing."""
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


def write_pair(files: TlsFiles, name: str) -> bytes:
    """Write a new certificate for *name* with its key and return the certificate in DER."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    Path(files.key_file).write_bytes(pem)
    Path(files.cert_file).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    return certificate.public_bytes(serialization.Encoding.DER)


async def certificate_shown(port: int, server_name: str | None) -> bytes | None:
    """Return the certificate that a new connection is shown."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=server_name)
    shown: bytes | None = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


@pytest.mark.parametrize("server_name", ["svc.ns.svc", ""])
async def test_new_connections_get_the_new_certificate(tmp_path: Path, server_name: str) -> None:
    """A renewed Secret is served without a restart, to clients that send a name and to those that do not."""
    files = TlsFiles(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    old = write_pair(files, "old")
    certificate = Certificate(files)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert old == await certificate_shown(port, server_name)
        new = write_pair(files, "new")
        assert certificate.reload_if_changed()
        assert new == await certificate_shown(port, server_name)
        assert not certificate.reload_if_changed()


async def test_a_broken_pair_leaves_the_old_one_in_service(tmp_path: Path) -> None:
    """Half a renewal, garbage or a missing file must not take the service down; the whole renewal then counts."""
    files = TlsFiles(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    old = write_pair(files, "old")
    certificate = Certificate(files)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        for breakage in ("garbage", None, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
            if breakage is None:
                Path(files.cert_file).unlink()
            else:
                Path(files.cert_file).write_text(breakage)
            assert not certificate.reload_if_changed()
            assert old == await certificate_shown(port, "x")
        new = write_pair(files, "new")
        assert certificate.reload_if_changed()
        assert new == await certificate_shown(port, "x")


async def test_a_server_with_tls_renews_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has to tell the server that the files changed."""
    monkeypatch.setattr(Certificate.keep_current, "__defaults__", (0.02,))
    files = TlsFiles(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    write_pair(files, "old")
    server = await serve(an_application(), "127.0.0.1:0", files)
    try:
        new = write_pair(files, "new")
        async with asyncio.timeout(5):
            while await certificate_shown(server.port, "x") != new:  # noqa: ASYNC110 - the peer sets no event
                await asyncio.sleep(0.02)
    finally:
        await server.close()


async def test_a_certificate_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    """Serving without the certificate that was asked for is no choice."""
    files = TlsFiles(str(tmp_path / "none.crt"), str(tmp_path / "none.key"))
    with pytest.raises(ServeError, match=r"^--cert_file .*none\.crt: No such file or directory; it must be a PEM"):
        await serve(an_application(), "127.0.0.1:0", files)


async def test_a_key_of_another_certificate_stops_the_start(tmp_path: Path) -> None:
    """Both files are named: either may be the wrong one."""
    files = TlsFiles(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    write_pair(files, "one")
    certificate = Path(files.cert_file).read_text()
    write_pair(files, "other")
    Path(files.cert_file).write_text(certificate)
    with pytest.raises(ServeError, match=r"--cert_file .*tls\.crt and --key_file .*tls\.key are not a PEM certificate"):
        await serve(an_application(), "127.0.0.1:0", files)


async def test_an_address_that_is_none_names_its_flag() -> None:
    """The operator knows the flag."""
    with pytest.raises(ServeError, match=r"^--http_bind '8080' is not host:port with a port of 0 to 65535$"):
        await serve(an_application(), "8080", flag="--http_bind")
