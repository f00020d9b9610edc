"""
The cache of built images, so that each is built once for all checkouts and tags.

Owns a folder with an entry for each image and key of its recipe, which exists only if it is complete. Entries without a
request in `KEPT_DAYS` are removed. Must never build.
"""

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from image.archive import rename

KEPT_DAYS = 14
BESIDE = (".cdx.json", ".log")
"""The files beside an archive: its bill of materials and the log of its build."""


@dataclass(frozen=True)
class Built:
    """The figures of an image, in a file beside its archive."""

    digest: str
    unpacked_bytes: int
    above_base_bytes: int
    archive_bytes: int
    seconds: float
    """The duration of the build."""


class Store:
    """The kept images. An entry is a folder, and its time is that of the last request."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, name: str, key: str) -> bool:
        """Return whether the store has the image *name* with *key*. If so, it is kept for another `KEPT_DAYS`."""
        try:
            os.utime(self._entry(name, key))
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def adding(self, name: str, key: str) -> Iterator[Path]:
        """Yield the path of a new archive. It and the files beside it are kept if the block succeeds."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as part:
            entry = Path(part) / "entry"
            entry.mkdir()
            yield entry / f"{name}.tar"
            entry.rename(self._entry(name, key))

    def deliver(self, key: str, reference: str, archive: Path) -> Built:
        """Write the image with *key* to *archive* with the name *reference*, unless it is there already."""
        kept = self._entry(archive.stem, key) / archive.name
        told = archive.with_suffix(".json")
        built = Built(**json.loads(kept.with_suffix(".json").read_text()))
        wanted = json.dumps({"reference": reference, "key": key, **asdict(built)}, indent=2) + "\n"
        if not (archive.exists() and told.exists() and told.read_text() == wanted):
            told.unlink(missing_ok=True)
            for suffix in BESIDE:
                shutil.copyfile(kept.with_suffix(suffix), archive.with_suffix(suffix))
            rename(kept, reference, archive)
            told.write_text(wanted)
        return built

    def prune(self) -> None:
        """Remove the entries without a request in `KEPT_DAYS`."""
        oldest = time.time() - KEPT_DAYS * 24 * 3600
        for entry in self._folder.iterdir() if self._folder.exists() else ():
            if entry.stat().st_mtime < oldest:
                shutil.rmtree(entry)

    def _entry(self, name: str, key: str) -> Path:
        return self._folder / f"{name}-{key}"
