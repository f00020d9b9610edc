"""
Keep the region file of each container open, and record why others cannot be read.

One bad file is refused and logged once, and does not affect the others.
Neighbours: `containers` chooses the file, `region_file` opens it, `feedback` plans what is stored.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import structlog

from hami_monitor.adapters.region_file import RegionFile, RegionRefusedError, RegionUnusedError
from hami_monitor.decide.containers import ContainerDirectory, ContainerKey, Refusal, choose_region_file
from hami_monitor.decide.feedback import FeedbackWrite
from hami_monitor.decide.usage import RegionReading

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

    @property
    def refusals(self) -> Mapping[ContainerKey, Refusal]:
        """The containers whose region cannot be read now, and why."""
        return {key: refused.refusal for key, refused in self._refusals.items()}

    def follow(self, directories: Iterable[ContainerDirectory]) -> None:
        """Open new regions in *directories*, reopen replaced ones, and close those that are gone."""
        chosen = {directory.key: choose_region_file(directory.file_names) for directory in directories}
        for key in [*self._files, *self._refusals]:
            if key not in chosen:
                self.forget(key)
        for key, choice in chosen.items():
            self._follow_one(key, choice)

    def read(self) -> dict[ContainerKey, RegionReading]:
        """Return the present contents of every region; a refused one is left out, and tried again next round."""
        found = {}
        for key, file in list(self._files.items()):
            try:
                found[key] = file.read()
            except RegionUnusedError:
                self.forget(key)
            except RegionRefusedError as refused:
                self._refuse(key, refused)
        return found

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

    def _follow_one(self, key: ContainerKey, choice: str | Refusal | None) -> None:
        directory = self._folder / str(key)
        if choice is None:
            self.forget(key)
        elif isinstance(choice, Refusal):
            self._refuse(key, RegionRefusedError(directory, choice, "more than one region file beside the library"))
        else:
            self._open(key, directory / choice)

    def _open(self, key: ContainerKey, path: Path) -> None:
        file = self._files.get(key)
        if file is not None and file.is_at(path):
            return
        try:
            opened = RegionFile.open(path)
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
