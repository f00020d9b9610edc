"""
Prepare the directory of a container that starts, and bound its region file.

A container whose grant travels in a CDI spec can write one file of its directory, the region, and read the other, its
limits. So the directory has nothing else, and costs the same at each start. New files cost most of that, so they may
be made before the kubelet calls; a start makes what is missing. Under the node lock the container gets the directory
itself, writable, as HAMi does it, and its limits file is elsewhere. An earlier container may have left anything in such
a directory, so nothing here follows a link.
Neighbours: `hamicommon.runtime.host.removal` deletes what was left, `identity` and `lock` call.
"""

import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from hami_device_plugin.adapters.files import label_for_containers, make_world_writable
from hami_device_plugin.decide.allocate.allocation import LIMITS, LIMITS_FOLDER
from hamicommon.runtime.host.atomic_file import remove_temporaries, write_atomically
from hamicommon.runtime.host.records import forget
from hamicommon.runtime.host.removal import FOLDER, set_aside

REGION_SUFFIX = ".cache"
REGION_BYTES_MAX = 16 * 2**20
"""A region is 2 MiB; a larger file under its name is not one."""
REGION_MODE = 0o666
DIRECTORY_MODE = 0o755
LIMITS_MODE = 0o644
SPARE = "next"
"""A region file that has no name yet."""
_NAMES_MAX = 8
"""How many names of one directory are looked at; ours has one, HAMi's three."""
_UNFOLLOWED = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_EXISTING = os.O_WRONLY | _UNFOLLOWED
_NEW = _EXISTING | os.O_CREAT | os.O_EXCL


def premake_directory(directory: Path) -> None:
    """
    Make the *directory* of a container that has never started, with a region and limits to be filled; else do nothing.

    At the same time the container may be prepared, which uses any of these files, and makes what it does not find.
    """
    try:
        directory.mkdir(mode=DIRECTORY_MODE, parents=True)
    except FileExistsError:
        return
    with suppress(FileExistsError):
        _create(directory / SPARE)
        os.close(os.open(directory / LIMITS, _NEW, LIMITS_MODE))
    for path in (directory, directory / SPARE, directory / LIMITS):
        label_for_containers(path)


def prepare_region(file: Path) -> None:
    """
    Prepare the region *file* of a container that starts: without contents, writable for every user, alone.

    The container's previous run left a region of the same Allocate answer. It is cleared, because its processes are
    gone and their PIDs may be reused. It is cleared in place, because a monitor has it mapped.
    """
    if not _is_for_one_file(file):
        _renew(file)
    if not _clear(file) and not _use_spare(file):
        set_aside(file, file.parent.parent)
        _create(file)
    label_for_containers(file.parent)
    label_for_containers(file)


def keep_region(file: Path) -> None:
    """Prepare the region *file* unless it is one already: containers that run may use it."""
    remove_temporaries(file.parent, LIMITS)
    with _opened(file, os.O_RDONLY | _UNFOLLOWED) as descriptor:
        status = os.fstat(descriptor) if descriptor is not None else None
    if status is None or not _is_lone_file(status) or status.st_mode & REGION_MODE != REGION_MODE:
        prepare_region(file)


def write_limits(directory: Path, content: bytes) -> None:
    """
    Make the limits file in a prepared *directory* have *content*.

    The container has the directory, read-only, so a file that is renamed into it reaches running programs. Every start
    writes it again.
    """
    file = directory / LIMITS
    if not _fill(file, content):
        write_atomically(file, content, is_durable=False)
    label_for_containers(file)


def forget_limits(containers: Path, is_gone: Callable[[str], bool]) -> None:
    """
    Remove the directories in LIMITS_FOLDER of *containers* for whose names *is_gone* returns True.

    Raises:
        OSError: one cannot be removed.
    """
    with suppress(FileNotFoundError):
        for directory in (containers / LIMITS_FOLDER).iterdir():
            if is_gone(directory.name):
                shutil.rmtree(directory)


def forget_requests(claims: Path, uid: str) -> None:
    """Set aside the directories in *claims* of the requests of the claim *uid*, and forget them. Raises: OSError."""
    for directory in claims.glob(f"{uid}_*"):
        set_aside(directory, claims)
    forget(claims, lambda name: name.startswith(f"{uid}_"))


def prepare_directory(directory: Path) -> None:
    """Make *directory* empty and writable for every user."""
    set_aside(directory, directory.parent)
    make_world_writable(directory)
    label_for_containers(directory)


def was_used(file: Path) -> bool:
    """
    Return whether a container has had the region *file* since it was prepared.

    Its runtime then made the file executable, as a mark. The library sets the mode back when it writes the region.
    """
    with _opened(file, os.O_RDONLY | _UNFOLLOWED) as descriptor:
        if descriptor is None:
            return False
        return bool(os.fstat(descriptor).st_mode & 0o111) or any(os.read(descriptor, 4))


def cut_regions(containers: Path) -> list[str]:
    """
    Cut the region files in *containers* that are larger than any region; return their paths.

    The library never makes one so large. What it has mapped stays.
    """
    cut = []
    for path in _regions(containers):
        with suppress(OSError):
            if path.lstat().st_size > REGION_BYTES_MAX and _cut(path):
                cut.append(str(path))
    return cut


def _is_for_one_file(file: Path) -> bool:
    """
    Return whether the directory of *file* was made for it: at most the limits and a spare region are beside it, and
    only this user can change it.

    A process that was killed may have left a temporary file, too.
    """
    try:
        status = file.parent.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o7022:
            return False
        with os.scandir(file.parent) as entries:
            return all(
                entry.name == file.name or (entry.name in (LIMITS, SPARE) and entry.is_file(follow_symlinks=False))
                for entry in islice(entries, 4)
            )
    except FileNotFoundError:
        return False


def _renew(file: Path) -> None:
    """Replace the directory of *file* by a new one, with the region if the old one has it."""
    old = set_aside(file.parent, file.parent.parent)
    file.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)  # it may be made ahead at this moment
    if old is not None and old.is_dir() and not old.is_symlink():
        with suppress(FileNotFoundError):
            (old / file.name).rename(file)


def _clear(file: Path) -> bool:
    """Overwrite a region file with zeros; return False if there is none, or *file* is anything else."""
    with _opened(file) as descriptor:
        if descriptor is None:
            return False
        status = os.fstat(descriptor)
        if not _is_lone_file(status) or status.st_size > REGION_BYTES_MAX:
            return False
        try:
            if stat.S_IMODE(status.st_mode) != REGION_MODE:
                os.fchmod(descriptor, REGION_MODE)
            os.pwrite(descriptor, bytes(status.st_size), 0)
        except PermissionError:
            return False  # The container changed the file's owner and mode.
        return True


def _use_spare(file: Path) -> bool:
    """Give the spare region of the directory the name *file*; return False unless that is then a region."""
    try:
        (file.parent / SPARE).rename(file)
    except OSError:
        return False
    return _clear(file)


def _fill(file: Path, content: bytes) -> bool:
    """
    Write *content* into *file* if it is empty, so that no program can have read it; return whether it was.

    If this process is killed meanwhile, the next start finds other contents, and replaces the file.
    """
    with _opened(file) as descriptor:
        if descriptor is None:
            return False
        status = os.fstat(descriptor)
        if not _is_lone_file(status) or status.st_size or status.st_uid != os.geteuid():
            return False
        if stat.S_IMODE(status.st_mode) != LIMITS_MODE:
            os.fchmod(descriptor, LIMITS_MODE)
        return os.write(descriptor, content) == len(content)


@contextmanager
def _opened(file: Path, flags: int = _EXISTING) -> Iterator[int | None]:
    """Open *file* for a block; None if it cannot be opened."""
    try:
        descriptor = os.open(file, flags)
    except OSError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _is_lone_file(status: os.stat_result) -> bool:
    """Return whether *status* is that of a regular file with one name."""
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _create(file: Path) -> None:
    descriptor = os.open(file, _NEW, REGION_MODE)
    try:
        os.fchmod(descriptor, REGION_MODE)
    finally:
        os.close(descriptor)


def _regions(containers: Path) -> Iterator[Path]:
    """Yield the region files of all containers."""
    with suppress(FileNotFoundError), os.scandir(containers) as directories:
        for directory in directories:
            if directory.name != FOLDER and directory.is_dir(follow_symlinks=False):
                with suppress(OSError), os.scandir(directory) as entries:
                    names = [entry.name for entry in islice(entries, _NAMES_MAX)]
                    yield from (Path(directory.path, name) for name in names if name.endswith(REGION_SUFFIX))


def _cut(path: Path) -> bool:
    with _opened(path) as descriptor:
        if descriptor is None or not _is_lone_file(os.fstat(descriptor)):
            return False
        os.ftruncate(descriptor, REGION_BYTES_MAX)
        return True
