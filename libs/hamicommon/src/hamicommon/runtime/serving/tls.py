"""
The certificate of a TLS server, which is replaced while the server runs.

It must never use an incomplete or broken pair: the previous pair stays in use.
Neighbours: `http` listens with it.
"""

import asyncio
import os
import ssl
from pathlib import Path

import structlog

from hamicommon.errors import HamiError

POLL_SECONDS = 5.0

logger = structlog.get_logger()


class TlsError(HamiError):
    """A certificate and key that cannot be used."""


class Certificate:
    """
    The certificate of a server. Before the first `take`, handshakes fail.

    OpenSSL's server-name callback, which runs for every handshake, selects the newest context. A renewal is therefore
    one assignment, and open connections continue.
    """

    def __init__(self) -> None:
        self.chain = b""
        """The PEM chain in use, the server's certificate first; empty before `take`."""
        self.context = self._current = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        """The context to listen with."""
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.sni_callback = self._use_current

    def take(self, chain: bytes, key: bytes) -> None:
        """
        Use this PEM *chain*, whose first certificate belongs to *key*, from the next handshake on.

        Raises:
            TlsError: they are no PEM, or no pair; the previous ones stay in use.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        # Python's ssl reads files only. This file is in memory, so that the key is not written to a disk.
        with os.fdopen(os.memfd_create("certificate"), "wb") as memory:
            memory.write(chain + b"\n" + key)
            memory.flush()
            try:
                context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}")
            except (OSError, ValueError) as error:
                raise TlsError(f"not a PEM certificate and its key: {error}") from error
        self._current, self.chain = context, chain

    def _use_current(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        connection.context = self._current


class FileCertificate(Certificate):
    """A certificate in two PEM files, as mounted from a Secret. Errors name the flags."""

    def __init__(self, cert_file: str, key_file: str) -> None:
        """
        Read the files.

        Raises:
            TlsError: they cannot be read or are not a pair.
        """
        super().__init__()
        self._cert_file = Path(cert_file)
        self._key_file = Path(key_file)
        self._seen = self._content()
        self._take_seen()

    async def follow(self, poll_seconds: float = POLL_SECONDS) -> None:
        """Check the files every *poll_seconds* and use each new valid pair, until cancelled."""
        while True:
            await asyncio.sleep(poll_seconds)
            await asyncio.to_thread(self.reload_if_changed)

    def reload_if_changed(self) -> bool:
        """Return whether a new pair is in use. A broken one is logged once, and the previous one stays."""
        content = self._content()
        if content == self._seen:
            return False
        self._seen = content
        try:
            self._take_seen()
        except TlsError as error:
            logger.error("New certificate not used, the previous one stays in use", error=str(error))
            return False
        logger.info("Certificate renewed", cert_file=str(self._cert_file))
        return True

    def _content(self) -> tuple[bytes | str, ...]:
        """Return the content of both files, or as text why a file cannot be read."""
        return _read(self._cert_file), _read(self._key_file)

    def _take_seen(self) -> None:
        chain, key = self._seen
        for flag, path, content in (("--cert_file", self._cert_file, chain), ("--key_file", self._key_file, key)):
            if isinstance(content, str):
                raise TlsError(f"{flag} {path}: {content}; it must be a PEM file")
        assert isinstance(chain, bytes)
        assert isinstance(key, bytes)
        try:
            self.take(chain, key)
        except TlsError as error:
            raise TlsError(f"--cert_file {self._cert_file} and --key_file {self._key_file} are {error}") from error


def _read(path: Path) -> bytes | str:
    try:
        return path.read_bytes()
    except OSError as error:
        return error.strerror or str(error)
