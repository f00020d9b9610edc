"""
Write whole files or nothing, and prepare directories that containers write to.

Owns the temporary names and the permissions. A directory that a container could write to is hostile: nothing here
follows a link in it.
"""

import itertools
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

WORLD_WRITABLE = 0o777
REGION_BYTES_MAX = 16 * 2**20
"""A region is 2 MiB; anything larger under its name is not one."""
_serial = itertools.count()


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> bool:
    """
    Make *path* hold *content* by a rename inside its directory, and return whether it did not already.

    Whoever has the old file mapped or mounted keeps it.
    """
    with suppress(OSError):
        if path.read_bytes() == content:
            return False
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{next(_serial)}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def remove_temporaries(directory: Path, prefix: str) -> None:
    """
    Remove what a process killed inside `write_atomically` left in *directory* of files starting with *prefix*.
    """
    for path in directory.glob(f".{prefix}*.tmp"):
        path.unlink(missing_ok=True)


def make_world_writable(directory: Path) -> None:
    """
    Create *directory* with its parents, and let every user write to it whatever the umask.
    """
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(WORLD_WRITABLE)


def recreate(directory: Path) -> None:
    """
    Make *directory* exist, empty and writable for everyone.
    """
    _remove(directory)
    make_world_writable(directory)


def prepare_container(directory: Path, region: str) -> None:
    """
    Make *directory* ready for a container about to start: writable, and empty but for its region file.

    A region of the same Allocate answer is left by the container's last run. It is cleared in place, because all its
    processes are gone while their numbers may be taken again, and because a monitor has the file mapped and would not
    notice another one under its name.
    """
    keep = directory / region
    if directory.is_dir() and not directory.is_symlink():
        for path in directory.iterdir():
            if path != keep or not _clear(path):
                _remove(path)
    else:
        _remove(directory)
    make_world_writable(directory)


def _clear(path: Path) -> bool:
    """
    Overwrite a region file with zeros, and return False where *path* is anything else.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_size > REGION_BYTES_MAX:
            return False
        os.pwrite(descriptor, bytes(status.st_size), 0)
        return True
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
