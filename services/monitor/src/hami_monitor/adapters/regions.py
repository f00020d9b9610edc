"""
Keep the region file of each container open, and record why others cannot be read.

One bad file is refused and logged once, and does not affect the others.
Neighbours: `containers` chooses the file, `region_file` opens it, `usage` and `feedback` take what it says.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from hami_monitor.adapters.region_file import RegionFile, RegionRefusedError, RegionUnusedError
from hami_monitor.decide.containers import ContainerDirectory, ContainerKey, Refusal, choose_region_file
from hami_monitor.decide.feedback import FeedbackWrite
from hami_monitor.decide.grants import Grant
from hami_monitor.decide.usage import ContainerUsage, affordable, container_usage, granted_devices
from hamicommon.wire.region.sums import RegionState

Read = TypeVar("Read")

logger = structlog.get_logger()


class Regions:
    """The regions of the containers below one directory."""

    def __init__(self, folder: Path) -> None:
        """Prepare; the container directories are in *folder*."""
        self.writes: Counter[str] = Counter()
        """Writes since the start, by field."""
        self._folder = folder
        self._files: dict[ContainerKey, RegionFile] = {}
        self._refusals: dict[ContainerKey, RegionRefusedError] = {}
        self._skipped: frozenset[ContainerKey] = frozenset()
        """Containers with more processes than the last reading had time for."""

    @property
    def refusals(self) -> Mapping[ContainerKey, Refusal]:
        """The containers whose region cannot be read now, and why."""
        skipped = dict.fromkeys(self._skipped & self._files.keys(), Refusal.TOO_MANY_PROCESSES)
        return skipped | {key: refused.refusal for key, refused in self._refusals.items()}

    def follow(self, directories: Iterable[ContainerDirectory]) -> None:
        """Open new regions in *directories*, reopen replaced ones, and close those that are gone."""
        chosen = {directory.key: choose_region_file(directory.file_names) for directory in directories}
        for key in [*self._files, *self._refusals]:
            if key not in chosen:
                self.forget(key)
        for key, choice in chosen.items():
            self._follow_one(key, choice)

    def states(self) -> dict[ContainerKey, RegionState]:
        """Return the state of every region now; a refused one is left out, and tried again next round."""
        return self._each({key: file.state for key, file in self._files.items()})

    def usages(self, grants: Mapping[ContainerKey, Grant]) -> dict[ContainerKey, ContainerUsage]:
        """Return what each container with a grant and a region uses now."""
        states = self.states()
        names = {key: granted_devices(states[key], grants[key]) for key in states.keys() & grants.keys()}
        costs = {key: states[key].slot_count * len(found) for key, found in names.items()}
        chosen = affordable(costs)
        self._skip(frozenset(costs) - frozenset(chosen))
        sums = self._each({key: partial(self._files[key].sums, states[key].slot_count, names[key]) for key in chosen})
        return {key: container_usage(states[key], found, names[key]) for key, found in sums.items()}

    def store(self, writes: Mapping[ContainerKey, FeedbackWrite]) -> None:
        """Store each of *writes* into its region."""
        for key, write in writes.items():
            file = self._files.get(key)
            if file is None:
                continue
            try:
                self.writes.update(file.store(write))
            except RegionRefusedError as refused:
                self._refuse(key, refused)

    def forget(self, key: ContainerKey) -> None:
        """Close the region of *key*, if there is one."""
        self._refusals.pop(key, None)
        file = self._files.pop(key, None)
        if file is not None:
            file.close()

    def close(self) -> None:
        """Close every region."""
        for key in list(self._files):
            self.forget(key)

    def __len__(self) -> int:
        """Return the number of open regions."""
        return len(self._files)

    def _each(self, reads: Mapping[ContainerKey, Callable[[], Read]]) -> dict[ContainerKey, Read]:
        """Return what each of *reads* returns; a region whose read fails is refused."""
        found = {}
        for key, read in reads.items():
            try:
                found[key] = read()
            except RegionUnusedError:
                self.forget(key)
            except RegionRefusedError as refused:
                self._refuse(key, refused)
        return found

    def _skip(self, keys: frozenset[ContainerKey]) -> None:
        for key in keys - self._skipped:
            logger.warning("Region not read, it has too many processes", container=str(key))
        self._skipped = keys

    def _follow_one(self, key: ContainerKey, choice: str | Refusal | None) -> None:
        if choice is None:
            self.forget(key)
        elif isinstance(choice, Refusal):
            problem = "more than one region file beside the library"
            self._refuse(key, RegionRefusedError(self._folder / str(key), choice, problem))
        else:
            # A text and not a Path, because every scrape looks at every region.
            self._open(key, f"{self._folder}/{key}/{choice}")

    def _open(self, key: ContainerKey, path: str) -> None:
        file = self._files.get(key)
        if file is not None and file.is_at(path):
            return
        try:
            opened = RegionFile.open(Path(path))
        except RegionUnusedError:
            self.forget(key)
            return
        except RegionRefusedError as refused:
            self._refuse(key, refused)
            return
        self.forget(key)
        self._files[key] = opened

    def _refuse(self, key: ContainerKey, refused: RegionRefusedError) -> None:
        known = self._refusals.get(key)
        self.forget(key)
        self._refusals[key] = refused
        if known is None or str(known) != str(refused):
            logger.warning("Region refused", container=str(key), reason=refused.refusal.value, error=str(refused))
