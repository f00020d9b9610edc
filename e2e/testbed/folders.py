"""
Folders that one run at a time may work in.

Must never remove what another run or another user made.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class FolderInUseError(Exception):
    """Another process works in the folder, or it is another user's; the message says which."""


@contextmanager
def claimed(folder: Path) -> Iterator[None]:
    """
    Have *folder* to ourselves for the length of a block; it is made if need be, and may be gone afterwards.

    Raises: FolderInUseError.
    """
    while True:
        handle = _open_own(folder)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise FolderInUseError(f"{folder} is in use: let the other run end, or end it with Ctrl-C") from None
            # The other run may have removed the folder between our opening and locking it.
            if folder.exists() and os.path.samestat(os.fstat(handle), folder.stat()):
                yield
                return
        finally:
            os.close(handle)


def _open_own(folder: Path) -> int:
    """Return a descriptor of *folder*, made if need be; another user's or a link in its place is refused."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise FolderInUseError(f"{folder} cannot be used: {error.strerror}; remove it: sudo rm -r {folder}") from error
    if os.fstat(handle).st_uid != os.geteuid():
        os.close(handle)
        raise FolderInUseError(f"{folder} is another user's; remove it: sudo rm -r {folder}")
    return handle


def short_folder() -> Path:
    """Return a new folder with a short path, because the path of a Unix socket may have 107 bytes."""
    return Path(tempfile.mkdtemp(prefix="hami-e2e-"))
