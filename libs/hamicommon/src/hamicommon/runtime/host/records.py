"""
Record how containers of a Node were started, where their Pod does not say so.

The device plugin records it when it prepares a container, and the monitor reads it: a tenant can edit its Pod later,
and these folders are mounted into no container. Each record is an empty file in a folder of its kind beside the
directories of containers, or of requests of ResourceClaims, with the name that such a directory has.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

UNPRELOADED = ".unpreloaded"
"""Started without the library."""
IN_NAMESPACE = ".mps-namespace"
"""Limited in compute by a namespace of MPS."""
KINDS = (UNPRELOADED, IN_NAMESPACE)
"""Folders. The leading dot tells that they are no container's directory."""


def record(containers: Path, kind: str, name: str, *, is_so: bool) -> None:
    """
    Record in *containers* whether the container with the directory *name* was started as the *kind* says.

    Raises:
        OSError: the record cannot be changed.
    """
    file = containers / kind / name
    if not is_so:
        file.unlink(missing_ok=True)
        return
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.touch()


def recorded(containers: Path, kind: str) -> frozenset[str]:
    """
    Return the names of the containers in *containers* that have a record of a *kind*.

    Raises:
        OSError: the records cannot be read.
    """
    with suppress(FileNotFoundError):
        return frozenset(path.name for path in (containers / kind).iterdir())
    return frozenset()


def forget(containers: Path, is_gone: Callable[[str], bool]) -> None:
    """
    Remove the records in *containers* of the names for which *is_gone* returns True.

    Raises:
        OSError: a record cannot be removed.
    """
    for kind in KINDS:
        for name in filter(is_gone, recorded(containers, kind)):
            (containers / kind / name).unlink(missing_ok=True)
