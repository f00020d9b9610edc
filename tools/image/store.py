"""
Keep built images below the user's cache, so that each is built once, for whichever checkout and under whichever tag.

Owns a folder of them: an entry for each image and key of its recipe, whole or not there. What nobody has asked for in
`KEPT_DAYS` goes. Must never build.
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
"""What lies beside an archive: its bill of materials, and what its build said."""


@dataclass(frozen=True)
class Built:
    """What is told of an image; written beside its archive."""

    digest: str
    unpacked_bytes: int
    above_base_bytes: int
    archive_bytes: int
    seconds: float
    """What the build took."""


class Store:
    """The images that are kept. An entry is a folder, and its time is when somebody last asked for it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def has(self, name: str, key: str) -> bool:
        """Return whether the image *name* is kept as built from *key*; if so it stays for `KEPT_DAYS` from now."""
        try:
            os.utime(self._entry(name, key))
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def adding(self, name: str, key: str) -> Iterator[Path]:
        """Give where to write an archive and what lies beside it; they are kept if the block ends well."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder) as part:
            entry = Path(part) / "entry"
            entry.mkdir()
            yield entry / f"{name}.tar"
            entry.rename(self._entry(name, key))

    def deliver(self, key: str, reference: str, archive: Path) -> Built:
        """Write the image kept for *key* to *archive* under the name *reference*, unless that is what is there."""
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
        """Remove what nobody has asked for in `KEPT_DAYS`."""
        oldest = time.time() - KEPT_DAYS * 24 * 3600
        for entry in self._folder.iterdir() if self._folder.exists() else ():
            if entry.stat().st_mtime < oldest:
                shutil.rmtree(entry)

    def _entry(self, name: str, key: str) -> Path:
        return self._folder / f"{name}-{key}"
