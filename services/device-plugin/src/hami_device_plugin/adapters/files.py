"""
Make files of the host usable for containers, and name the file in every error.

Neighbours: `regions` has the directories of containers, `hamicommon.runtime.host.atomic_file` writes files.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hamicommon.errors import HamiError

WORLD_WRITABLE = 0o777
SELINUX = "security.selinux"
CONTAINER_TYPE = "container_file_t"
SCRATCH = "/dev/shm"
"""Where a program may write what nobody keeps. The root of the plugin's container is read-only."""


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


def make_world_writable(directory: Path) -> None:
    """Create *directory* with its parents, writable for every user under any umask."""
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
