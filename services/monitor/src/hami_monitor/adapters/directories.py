"""
List and delete the container directories below `<HOOK_PATH>/containers`, and list those of ResourceClaims.

Must never follow a link, or fail because of one bad entry. Whatever a container left, a listing and each step of a
deletion take a bounded time.
Neighbours: `containers` decides what the listing means, `hamicommon.runtime.host.removal` deletes.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from hami_monitor.decide.containers import FILE_NAMES_MAX, ContainerDirectory, ContainerKey, parse_directory_name
from hamicommon.runtime.host.records import recorded
from hamicommon.runtime.host.removal import delete_some, set_aside

NAMES_EACH_STEP = 1000


class Directories:
    """The directory of container directories; it need not exist before the first container."""

    def __init__(self, hook_path: str, folder: str = "containers") -> None:
        """Use *folder* below *hook_path*."""
        self.path = Path(hook_path or "/") / folder

    def scan(self) -> tuple[tuple[ContainerDirectory, ...], tuple[str, ...]]:
        """Return the container directories in name order, and the names of all other directories."""
        found, odd = [], []
        for entry in self._entries():
            if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                continue
            key = parse_directory_name(entry.name)
            if key is None:
                odd.append(entry.name)
                continue
            try:
                names = _file_names(entry.path)
            except FileNotFoundError:
                continue
            except OSError:
                names = ()  # The disk is broken: the next round reads it again.
            found.append(ContainerDirectory(key, names))
        return tuple(found), tuple(odd)

    def changed_seconds(self, keys: Iterable[ContainerKey]) -> dict[ContainerKey, float]:
        """
        Return the Unix time of the last change of the directory of each of *keys*, unless it is gone.

        A change is an entry that was created or removed, for example. A container cannot set its time.
        """
        found = {}
        for key in keys:
            with suppress(OSError):  # It was removed, or the disk is broken: the next round asks again.
                found[key] = os.lstat(self.path / str(key)).st_ctime
        return found

    def recorded(self, kind: str) -> frozenset[ContainerKey]:
        """
        Return the containers of which the device plugin has recorded a *kind*.

        Raises:
            OSError: its records cannot be read.
        """
        return frozenset(key for name in recorded(self.path, kind) if (key := parse_directory_name(name)) is not None)

    def remove(self, key: ContainerKey) -> None:
        """
        Move the directory of *key* out of the way; `delete_some` deletes it.

        Raises:
            OSError: it cannot be moved.
        """
        set_aside(self.path / str(key), self.path)

    def delete_some(self) -> bool:
        """
        Delete some of what was moved out of the way, and return whether there is more.

        Raises:
            OSError: none of it can be deleted.
        """
        return delete_some(self.path, NAMES_EACH_STEP)

    def _entries(self) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(self.path) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []


def _file_names(directory: str) -> tuple[str, ...]:
    with os.scandir(directory) as entries:
        return tuple(sorted(entry.name for entry in islice(entries, FILE_NAMES_MAX)))
