"""
Keep plugins of two kinds from one Node.

Each plugin holds the lock of its kind while it serves, and serves only while nobody holds the other kind's. Plugins of
one kind share their lock, because an update of a Node of kind `dra` overlaps. The kernel ends the lock of a killed
process.
"""

import fcntl
from pathlib import Path
from typing import BinaryIO

from hamicommon.dra.names import KINDS


class KindLock:
    """The lock of one plugin, in a directory that all plugins of a Node see."""

    def __init__(self, directory: Path, kind: str) -> None:
        """Lock for *kind*, one of KINDS, in *directory*, which is made when first needed."""
        self._directory = directory
        self._kind = kind
        self._held: BinaryIO | None = None

    def take(self) -> str | None:
        """
        Hold the lock from now on and return None; hold nothing and return the other kind if a plugin of it serves.

        Of two plugins that try at the same moment both may fail, and never both succeed: each holds its own lock before
        it tries the other's. Raises: OSError.
        """
        self._directory.mkdir(parents=True, exist_ok=True)
        [kind] = [kind for kind in KINDS if kind != self._kind]
        own = self._path(self._kind).open("ab")
        with self._path(kind).open("ab") as other:
            if _lock(own, fcntl.LOCK_SH) and _lock(other, fcntl.LOCK_EX):
                self._held = own
                return None
        own.close()
        return kind

    def release(self) -> None:
        """Let go of the lock, if it is held."""
        if self._held is not None:
            self._held.close()

    def _path(self, kind: str) -> Path:
        return self._directory / f"node-kind-{kind}.lock"


def _lock(file: BinaryIO, how: int) -> bool:
    """Lock *file* and return True; return False if somebody else's lock forbids it."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
