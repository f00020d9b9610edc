"""
Folders that one run at a time works in.

Must never use a folder of another user, and never remove one that another run uses.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FolderInUseError(Exception):
    """The folder is in use by another process, or belongs to another user. The message says which."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """
    Hold *folder* exclusively during a block. It is created if missing, and may be gone afterwards.

    Raises: FolderInUseError.
    """
    while True:
        handle = _open_own(folder)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderInUseError(f"{folder} is in use: wait for the other run, or end it with Ctrl-C") from None
            # Another run may have removed the folder after we opened it and before we locked it.
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                yield
                return
        finally:
            os.close(handle)


def _open_own(folder: Path) -> int:
    """Return a descriptor of *folder*, created if missing. A link or a folder of another user is rejected."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise FolderInUseError(f"{folder} cannot be used: {error.strerror}; remove it: sudo rm -r {folder}") from error
    if os.fstat(handle).st_uid != os.geteuid():
        os.close(handle)
        raise FolderInUseError(f"{folder} belongs to another user; remove it: sudo rm -r {folder}")
    return handle


def short_folder() -> Path:
    """Return a new folder with a short path, because the path of a Unix socket may have 107 bytes."""
    return Path(tempfile.mkdtemp(prefix="hami-e2e-"))
