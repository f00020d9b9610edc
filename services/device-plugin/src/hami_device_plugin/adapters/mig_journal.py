"""
Keep the journal of MIG instances in a file of the host.

Owns the file's name and its place. A changed journal replaces the file by a rename, so a reader finds one or the other.
Two plugins overlap during an update, so whoever changes instances holds the journal; the kernel ends a killed process's
lock.
Neighbours: `decide.mig.journal` has the contents.
"""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import structlog

from hami_device_plugin.decide.mig.journal import Journal, JournalError, decode_journal, encode_journal
from hamicommon.runtime.host.atomic_file import remove_temporaries, write_atomically

NAME = "mig-instances.json"
LOCK_NAME = "mig-instances.lock"
HELD_SECONDS = 30.0
"""How long to wait while another plugin changes instances."""
POLL_SECONDS = 0.05
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

logger = structlog.get_logger()


class JournalFile:
    """The journal below one directory of the host."""

    def __init__(self, directory: Path, boot_id: Path = BOOT_ID) -> None:
        """
        Open the journal in *directory*; *boot_id* is the kernel's file that differs after each boot.

        Raises:
            JournalError: the directory cannot be written.
        """
        self.path = directory / NAME
        self._boot = boot_id.read_text().strip()
        self._lock_path = directory / LOCK_NAME
        self._lock = _opened(self._lock_path)

    def close(self) -> None:
        """Close the lock's file."""
        os.close(self._lock)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """
        Keep other plugins from the journal and from instances during a block.

        Raises:
            JournalError: another plugin holds it for long.
        """
        deadline = time.monotonic() + HELD_SECONDS
        while not self._is_locked_now():
            if time.monotonic() > deadline:
                raise JournalError(f"{self._lock_path}: another device plugin holds the journal of MIG instances")
            await asyncio.sleep(POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def read(self) -> Journal:
        """
        Return the journal; empty if there is none, or if it is of an earlier boot.

        An unreadable file is renamed and kept: its instances are then unknown, and stay.

        Raises:
            JournalError: the file exists and cannot be read.
        """
        remove_temporaries(self.path.parent, NAME)
        try:
            return decode_journal(orjson.loads(self.path.read_bytes()), self._boot)
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise JournalError(f"journal {self.path}: {error.strerror}") from error
        except (JournalError, orjson.JSONDecodeError) as error:
            aside = self.path.with_suffix(".unreadable")
            logger.error("The journal of MIG instances is unreadable", file=str(aside), error=str(error))
            self.path.replace(aside)
            return ()

    def write(self, journal: Journal) -> None:
        """
        Replace the journal.

        Raises:
            JournalError: it cannot be written.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, orjson.dumps(encode_journal(journal, self._boot), option=orjson.OPT_INDENT_2))
        except OSError as error:
            raise JournalError(f"journal {self.path}: {error.strerror}") from error

    def _is_locked_now(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror}") from error
