"""
Record which containers of a Node were started without the library.

The device plugin records it when it prepares a container, and the monitor reads it: a tenant can edit its Pod later,
and this folder is mounted into no container. Each record is an empty file in `.unpreloaded` beside the containers'
directories, with the name that such a directory has.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

FOLDER = ".unpreloaded"
"""The leading dot tells that this is no container's directory."""


def record(containers: Path, name: str, *, is_preloaded: bool) -> None:
    """
    Record in *containers* whether the container with the directory *name* gets the library.

    Raises:
        OSError: the record cannot be changed.
    """
    file = containers / FOLDER / name
    if is_preloaded:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch()


def recorded(containers: Path) -> frozenset[str]:
    """
    Return the names of the containers in *containers* that were started without the library.

    Raises:
        OSError: the records cannot be read.
    """
    with suppress(FileNotFoundError):
        return frozenset(path.name for path in (containers / FOLDER).iterdir())
    return frozenset()


def forget(containers: Path, is_gone: Callable[[str], bool]) -> None:
    """
    Remove the records in *containers* of the names for which *is_gone* returns True.

    Raises:
        OSError: a record cannot be removed.
    """
    for name in filter(is_gone, recorded(containers)):
        (containers / FOLDER / name).unlink(missing_ok=True)
