"""
Move directories of containers aside in one step, and delete them later in small ones.

A container may have left any number of names, at any depth, so deleting its directory takes unknown time. Moving it
does not. What was moved is in `.removed` beside the containers' directories, on the same file system, until it is
deleted, whichever process does that: the device plugin and the monitor both do. Nothing here follows a link.
"""

import os
import secrets
from contextlib import suppress
from itertools import islice
from pathlib import Path

FOLDER = ".removed"
"""The leading dot tells that this is no container's directory."""


def set_aside(path: Path, containers: Path) -> Path | None:
    """
    Move *path*, of any kind, below *containers* out of the way, and return its new place; None if there is nothing.
    """
    if not os.path.lexists(path):
        return None
    place = containers / FOLDER / secrets.token_hex(8)
    while True:
        place.parent.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            path.rename(place)
            return place
        if not os.path.lexists(path):
            return None


def delete_some(containers: Path, most: int) -> bool:
    """
    Delete at most *most* of the names that were set aside in *containers*; return whether names are left.

    A directory in a directory is moved up before it is emptied, so depth costs nothing.

    Raises:
        OSError: names are left, and none of them can be deleted.
    """
    folder, budget = containers / FOLDER, most
    while budget > 0:
        spent, failure = _delete_each(folder, budget)
        if spent == 0:
            break
        budget -= spent
    else:
        return True
    with suppress(OSError):
        folder.rmdir()
    if failure is not None and budget == most:
        raise failure
    return folder.exists()


def _delete_each(folder: Path, most: int) -> tuple[int, OSError | None]:
    """Delete from what is in *folder* at most *most* names; return how many that took, and the last failure."""
    spent, failure = 0, None
    try:
        with os.scandir(folder) as entries:
            places = [entry.path for entry in islice(entries, most)]
    except FileNotFoundError:
        return 0, None
    for place in places:
        if spent >= most:
            break
        try:
            spent += _delete(place, folder, most - spent)
        except FileNotFoundError:
            continue  # Another process has deleted it.
        except OSError as error:
            failure = error
    return spent, failure


def _delete(place: str, folder: Path, most: int) -> int:
    """Delete *place* as far as *most* names allow, and return how many names that took."""
    if not os.path.isdir(place) or os.path.islink(place):  # noqa: PTH112, PTH114
        os.unlink(place)  # noqa: PTH108
        return 1
    with os.scandir(place) as entries:
        names = list(islice(entries, most))
    for entry in names:
        if entry.is_dir(follow_symlinks=False):
            Path(entry.path).rename(folder / secrets.token_hex(8))
        else:
            os.unlink(entry.path)  # noqa: PTH108
    if len(names) < most:
        os.rmdir(place)  # noqa: PTH106
    return len(names) + 1
