"""
Write files atomically, and remove what a killed process left.

Owns the temporary names: random, because two processes may have the same PID in their containers. The process that
writes a temporary file holds a lock on it, so what a killed process left is known by having no lock.
"""

import fcntl
import os
import secrets
from contextlib import suppress
from pathlib import Path

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ANY_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def write_atomically(path: Path, content: bytes, mode: int = 0o644, *, is_durable: bool = True) -> bool:
    """
    Make *path* hold *content* by a rename inside its directory; return whether that changed it.

    Processes that have the old file mapped or mounted keep it. Unless *is_durable*, a power cut may leave it empty: a
    file that is written again before each use does not wait for the disk.
    """
    with suppress(OSError):
        if path.read_bytes() == content:
            return False
    temporary, descriptor = _new_temporary(path)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(descriptor, mode)
            if is_durable:
                os.fsync(descriptor)
            temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink()
        # Writing to a descriptor names no file.
        raise OSError(error.errno, error.strerror, str(path)) from error
    return True


def remove_temporaries(directory: Path, prefix: str) -> None:
    """Remove the temporary files in *directory* that killed processes left, for names with *prefix*."""
    for path in directory.glob(f".{prefix}*.tmp"):
        with suppress(FileNotFoundError):
            _remove_unlocked(path)


def _new_temporary(path: Path) -> tuple[Path, int]:
    """Create a temporary file beside *path*, and return it with its locked descriptor."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
        descriptor = os.open(temporary, _NEW_FILE, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if os.fstat(descriptor).st_nlink:
            return temporary, descriptor
        # Another instance removed it before it was locked.
        os.close(descriptor)


def _remove_unlocked(path: Path) -> None:
    descriptor = os.open(path, _ANY_FILE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    except BlockingIOError:
        return
    finally:
        os.close(descriptor)
