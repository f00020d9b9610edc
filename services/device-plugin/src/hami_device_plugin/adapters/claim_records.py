"""
Keep the records of prepared claims: a file for each, beside the directories of their requests.

A file is replaced by a rename and outlives a power cut. Two plugins overlap during an update, so whoever decides by the
records and changes them holds a lock; the kernel ends that of a killed process.
Neighbours: `hamicommon.dra.grants` has the contents; the monitor reads them too, by `runtime.host.claim_records`.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from hami_device_plugin.decide.dra.grant import ClaimError
from hamicommon.dra.grants import CLAIMS, RECORDS, ClaimGrant, encode_record
from hamicommon.runtime.host.atomic_file import remove_temporaries, write_atomically
from hamicommon.runtime.host.claim_records import RECORD_SUFFIX, read_records

_LOCK = "lock"
_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")

logger = structlog.get_logger()


class ClaimRecords:
    """The records below one directory."""

    def __init__(self, directory: Path) -> None:
        """Keep them in *directory*, which is made when first needed."""
        self._directory = directory

    @classmethod
    def of_node(cls, vgpu_directory: Path) -> "ClaimRecords":
        """Return the records of this Node, below *vgpu_directory* of the host."""
        return cls(vgpu_directory / CLAIMS / RECORDS)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other plugins from the records during a block. Raises: OSError."""
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        descriptor = os.open(self._directory / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def read(self) -> dict[str, ClaimGrant]:
        """Return the grants of all records, by the claim's UID; an unreadable one is logged and left out."""
        found, problems = read_records(self._directory)
        for path, problem in problems.items():
            logger.error("The record of a claim is unreadable, and does not count", file=str(path), error=problem)
        return found

    def write(self, grant: ClaimGrant) -> None:
        """
        Write the record of *grant*.

        Raises:
            ClaimError: its UID cannot be the name of a file.
            OSError: it cannot be written.
        """
        remove_temporaries(self._directory, "")
        write_atomically(self._path(grant.uid), encode_record(grant), mode=0o600)

    def remove(self, uid: str) -> None:
        """Remove the record of the claim *uid*, if there is one. Raises: as `write`."""
        self._path(uid).unlink(missing_ok=True)

    def _path(self, uid: str) -> Path:
        if not _UID.fullmatch(uid):
            raise ClaimError(f"UID {uid!r} of a ResourceClaim is not letters, digits and dashes")
        return self._directory / f"{uid}{RECORD_SUFFIX}"
