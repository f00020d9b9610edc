"""
The journal that makes changes survive the process.

Owns a folder with `snapshot` (all objects at one version) and `journal` (every change since), one JSON array a line. A
change is written before it is acknowledged, so `kill -9` loses no acknowledged change. A crash of the machine may, as
there is no fsync. Neighbours: `storage` calls `append` for each change, `load` fills the storage.
"""

import os
from pathlib import Path

import orjson

from minicluster.apiserver.api.resources import STORED, Resource
from minicluster.apiserver.store.storage import Entry, Storage, entry_of

JOURNAL_BYTES = 64 * 1024 * 1024
"""A larger journal is replaced by a new snapshot."""

_BY_NAME = {resource.qualified: resource for resource in STORED}


class Journal:
    """The durable copy of one `Storage`."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._snapshot = folder / "snapshot"
        self._journal = folder / "journal"
        self._storage: Storage | None = None
        self._descriptor = -1
        self._size = 0

    def load(self, storage: Storage) -> bool:
        """
        Fill *storage* from the folder, write a new snapshot, and return whether the folder had objects.

        An incomplete last line was never acknowledged, and is ignored.
        """
        found: dict[Resource, dict[str, Entry]] = {resource: {} for resource in STORED}
        version = 0
        for path in (self._snapshot, self._journal):
            version = max(version, _replay(path, found))
        for resource, entries in found.items():
            storage.restore(resource, entries, version)
        self._storage = storage
        self.rewrite()
        return version > 0

    def append(self, resource: Resource, key: str, entry: Entry | None, version: int) -> None:
        """Write one change. *entry* is None for a removal."""
        if self._size > JOURNAL_BYTES:
            self.rewrite()
        line = _line(version, resource, key, entry)
        written = os.write(self._descriptor, line)
        if written != len(line):
            os.ftruncate(self._descriptor, self._size)
            raise OSError(f"{self._journal}: only {written} of {len(line)} bytes written")
        self._size += written

    def rewrite(self) -> None:
        """Replace both files by a snapshot of the present. After a kill in between, changes are applied twice."""
        assert self._storage is not None
        temporary = self._snapshot.with_suffix(".new")
        with temporary.open("wb") as file:
            for resource, collection in self._storage.collections.items():
                for key, entry in collection.entries.items():
                    file.write(_line(entry.version, resource, key, entry))
            file.write(_line(self._storage.version, None, "", None))
        temporary.replace(self._snapshot)
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = os.open(self._journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        self._size = 0


def _line(version: int, resource: Resource | None, key: str, entry: Entry | None) -> bytes:
    data = orjson.Fragment(entry.data) if entry else None
    return orjson.dumps([version, resource.qualified if resource else "", key, data], option=orjson.OPT_APPEND_NEWLINE)


def _replay(path: Path, found: dict[Resource, dict[str, Entry]]) -> int:
    version = 0
    if not path.exists():
        return version
    for line in path.read_bytes().split(b"\n")[:-1]:
        written, name, key, data = orjson.loads(line)
        version = max(version, written)
        if name:
            entries = found[_BY_NAME[name]]
            if data is None:
                entries.pop(key, None)
            else:
                entries[key] = entry_of(_BY_NAME[name], data, written)
    return version
