"""
The certificate of a server over real sockets: none at first, then the newest.
"""

import asyncio
import ssl
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client import CollectorRegistry

from hamicommon.runtime.serving.http import application, serve
from hamicommon.runtime.serving.tls import Certificate, FileCertificate, TlsError

from .identities import an_identity


class Files(NamedTuple):
    """Where a pair is."""

    cert_file: str
    key_file: str


def write_pair(files: Files, name: str) -> bytes:
    """Write a new certificate for *name* with its key and return the certificate in DER."""
    key, certificate = an_identity(name)
    Path(files.key_file).write_bytes(key)
    Path(files.cert_file).write_bytes(certificate)
    return ssl.PEM_cert_to_DER_cert(certificate.decode())


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
    files = Files(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    old = write_pair(files, "old")
    certificate = FileCertificate(*files)
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert old == await certificate_shown(port, server_name)
        new = write_pair(files, "new")
        assert certificate.reload_if_changed()
        assert new == await certificate_shown(port, server_name)
        assert not certificate.reload_if_changed()


async def test_a_broken_pair_leaves_the_old_one_in_service(tmp_path: Path) -> None:
    """An incomplete renewal, garbage or a missing file does not stop the service; the complete renewal applies."""
    files = Files(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    old = write_pair(files, "old")
    certificate = FileCertificate(*files)
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
    """The server notices itself that the files changed."""
    monkeypatch.setattr(FileCertificate.follow, "__defaults__", (0.02,))
    files = Files(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    write_pair(files, "old")
    server = await serve(application("svc", "1", registry=CollectorRegistry()), "127.0.0.1:0", FileCertificate(*files))
    try:
        new = write_pair(files, "new")
        async with asyncio.timeout(5):
            while await certificate_shown(server.port, "x") != new:  # noqa: ASYNC110 - the peer sets no event
                await asyncio.sleep(0.02)
    finally:
        await server.close()


def test_a_file_that_cannot_be_read_is_named_by_its_flag(tmp_path: Path) -> None:
    """The server does not start without its certificate."""
    with pytest.raises(TlsError, match=r"^--cert_file .*none\.crt: No such file or directory; it must be a PEM"):
        FileCertificate(str(tmp_path / "none.crt"), str(tmp_path / "none.key"))


def test_a_key_of_another_certificate_names_both_files(tmp_path: Path) -> None:
    """The error names both files, because either can be wrong."""
    files = Files(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    write_pair(files, "one")
    certificate = Path(files.cert_file).read_text()
    write_pair(files, "other")
    Path(files.cert_file).write_text(certificate)
    with pytest.raises(TlsError, match=r"--cert_file .*tls\.crt and --key_file .*tls\.key are not a PEM certificate"):
        FileCertificate(*files)


async def test_no_handshake_succeeds_before_there_is_a_certificate(tmp_path: Path) -> None:
    """A server may listen first and get its certificate later; nothing is shown in between."""
    files = Files(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    shown = write_pair(files, "first")
    certificate = Certificate()
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context)
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await certificate_shown(port, "x")
        certificate.take(Path(files.cert_file).read_bytes(), Path(files.key_file).read_bytes())
        assert shown == await certificate_shown(port, "x")


async def test_an_open_connection_outlives_a_renewal(tmp_path: Path) -> None:
    """Only new handshakes see the new certificate."""
    files = Files(str(tmp_path / "tls.crt"), str(tmp_path / "tls.key"))
    write_pair(files, "old")
    certificate = FileCertificate(*files)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=certificate.context)
    client = ssl._create_unverified_context()
    async with server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1], ssl=client)
        for line in (b"before\n", b"after\n"):
            writer.write(line)
            assert line == await reader.readline()
            write_pair(files, "new")
            assert certificate.reload_if_changed()
        writer.close()
