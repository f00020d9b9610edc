"""
Read the records that the device plugin keeps of prepared ResourceClaims.

They are in a folder that is mounted into no container.
"""

from pathlib import Path
from typing import Final

from hamicommon.dra.grants import ClaimGrant, RecordError, decode_record

RECORD_SUFFIX: Final = ".json"


def read_records(directory: Path) -> tuple[dict[str, ClaimGrant], dict[Path, str]]:
    """
    Return the grants of all records in *directory*, by the claim's UID, and what is wrong with each unreadable one.

    Raises:
        OSError: the directory cannot be listed; one that does not exist has no records.
    """
    found, problems = {}, {}
    for path in sorted(directory.glob(f"[!.]*{RECORD_SUFFIX}")):
        try:
            found[path.stem] = decode_record(path.read_bytes())
        except FileNotFoundError:
            continue
        except (OSError, RecordError) as error:
            problems[path] = str(error)
    return found, problems
