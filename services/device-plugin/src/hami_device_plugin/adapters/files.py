"""
Write files atomically, and prepare directories for containers.

Owns the temporary names and the permissions. Containers write to these directories, so nothing here follows a link.
"""

import itertools
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

WORLD_WRITABLE = 0o777
REGION_BYTES_MAX = 16 * 2**20
"""A region is 2 MiB; a larger file under its name is not one."""
_serial = itertools.count()


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> bool:
    """
    Make *path* hold *content* by a rename inside its directory; return whether that changed it.

    Processes that have the old file mapped or mounted keep it.
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
    Remove the temporary files in *directory* that a killed `write_atomically` left, for names with *prefix*.
    """
    for path in directory.glob(f".{prefix}*.tmp"):
        path.unlink(missing_ok=True)


def make_world_writable(directory: Path) -> None:
    """
    Create *directory* with its parents, writable for every user under any umask.
    """
    directory.mkdir(parents=True, exist_ok=True)
    directory.chmod(WORLD_WRITABLE)


def recreate(directory: Path) -> None:
    """
    Make *directory* empty and writable for every user.
    """
    _remove(directory)
    make_world_writable(directory)


def prepare_container(directory: Path, region: str) -> None:
    """
    Prepare *directory* for a container that starts: writable, and empty except for its region file.

    The container's previous run left a region of the same Allocate answer. It is cleared, because its processes are
    gone and their PIDs may be reused. It is cleared in place, because the monitor has it mapped.
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
    Overwrite a region file with zeros; return False if *path* is anything else.
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
