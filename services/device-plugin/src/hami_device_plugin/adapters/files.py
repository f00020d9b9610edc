"""
Write files atomically, and name the file in every error.

Owns the temporary names: random, because two instances of the plugin may have the same PID in their containers. The
process that writes a temporary file holds a lock on it, so what a killed process left is known by having no lock.
Neighbours: `regions` has the directories of containers.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from hamicommon.errors import HamiError

WORLD_WRITABLE = 0o777
SELINUX = "security.selinux"
CONTAINER_TYPE = "container_file_t"
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ANY_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class HostFileError(HamiError):
    """A file or directory of the host cannot be used."""


@contextmanager
def host_files_of(owner: str) -> Iterator[None]:
    """
    Name *owner*, the path and the reason in the error of a failed system call.

    Raises:
        HostFileError: a system call failed.
    """
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise HostFileError(f"{owner}: {where}{error.strerror}") from error


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
        raise _about(path, error) from error
    return True


def remove_temporaries(directory: Path, prefix: str) -> None:
    """
    Remove the temporary files in *directory* that killed processes left, for names with *prefix*.
    """
    for path in directory.glob(f".{prefix}*.tmp"):
        with suppress(FileNotFoundError):
            _remove_unlocked(path)


def make_world_writable(directory: Path) -> None:
    """
    Create *directory* with its parents, writable for every user under any umask.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if directory.stat().st_mode & WORLD_WRITABLE != WORLD_WRITABLE:
        directory.chmod(WORLD_WRITABLE)


def label_for_containers(path: Path) -> str | None:
    """
    Give *path* the SELinux type that every container may use; return why that fails, None if it is done.

    A file without a label is on a host without SELinux, and gets none.
    Source: https://github.com/containers/container-selinux/blob/main/container.te (container_file_t)
    """
    try:
        label = os.getxattr(path, SELINUX, follow_symlinks=False).rstrip(b"\0").decode()
    except OSError:
        return None
    user, role, *_ = label.split(":")
    wanted = f"{user}:{role}:{CONTAINER_TYPE}:s0"
    if label == wanted:
        return None
    try:
        os.setxattr(path, SELINUX, wanted.encode() + b"\0", follow_symlinks=False)
    except OSError as error:
        return f"{path}: SELinux label {label} cannot become {wanted}: {error.strerror}"
    return None


def _new_temporary(path: Path) -> tuple[Path, int]:
    """
    Create a temporary file beside *path*, and return it with its locked descriptor.
    """
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


def _about(path: Path, error: OSError) -> OSError:
    """Return *error* with *path*; writing to a descriptor names no file."""
    return OSError(error.errno, error.strerror, str(path))
