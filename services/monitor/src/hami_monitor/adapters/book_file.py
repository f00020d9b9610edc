"""
Keep the book of device time in a file of the Node.

Owns the file's name and place. A new book replaces the file by a rename after it is on the disk, so a reader finds one
book or the other, also after a power cut. One process at a time has the file: the kernel ends a killed process's lock.
Neighbours: `hami_monitor.decide.accounts.book_text` has the content.
"""

import fcntl
import os
from pathlib import Path

from hamicommon.runtime.host.atomic_file import remove_temporaries, write_atomically

FOLDER = "monitor"
NAME = "accounts.json"
BYTES_MAX = 4 << 20
"""A book is a tenth of it at most."""
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class BookFile:
    """The file of one Node below its HOOK_PATH."""

    def __init__(self, hook_path: str) -> None:
        """Use the folder FOLDER below *hook_path*."""
        self.path = Path(hook_path) / FOLDER / NAME
        self._lock: int | None = None

    def read(self) -> bytes | None:
        """
        Take the file for this process, and return its content, at most BYTES_MAX; None if there is none.

        Raises:
            BlockingIOError: another process has it.
            OSError: it cannot be read, or its folder cannot be made.
        """
        self._take()
        remove_temporaries(self.path.parent, NAME)
        try:
            descriptor = os.open(self.path, _READ)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            return file.read(BYTES_MAX)

    def set_aside(self) -> Path:
        """Rename the file, so that somebody can look at it, and return its new place."""
        return self.path.replace(self.path.with_suffix(".unreadable"))

    def write(self, content: bytes) -> None:
        """
        Replace the file's content, and return once it is on the disk.

        Raises:
            OSError: it cannot be written; the file is as before.
        """
        write_atomically(self.path, content, mode=0o600)

    def close(self) -> None:
        """Let another process have the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _take(self) -> None:
        if self._lock is not None:
            return
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(folder)
            raise
        self._lock = folder
