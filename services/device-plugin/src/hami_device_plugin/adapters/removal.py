"""
Move directories of containers aside in one step, and delete them later in small ones.

A container may have left any number of names, at any depth, so deleting its directory takes unknown time. Moving it
does not. What was moved is in `.removed` beside the containers' directories, on the same file system, until it is
deleted, whichever process does that. Nothing here follows a link.
Neighbours: `regions` moves directories aside, `node_loop` deletes them.
"""

import os
import secrets
from contextlib import suppress
from itertools import islice
from pathlib import Path

FOLDER = ".removed"
"""The leading dot tells the monitor that this is no container's directory."""


def set_aside(path: Path, containers: Path) -> Path | None:
    """
    Move *path*, of any kind, below *containers* out of the way, and return its new place; None if there is nothing.
    """
    if not os.path.lexists(path):
        return None
    place = containers / FOLDER / secrets.token_hex(8)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    path.rename(place)
    return place


def delete_some(containers: Path, most: int) -> bool:
    """
    Delete at most *most* of the names that were set aside in *containers*; return whether names are left.

    A directory in a directory is moved up before it is emptied, so depth costs nothing.

    Raises:
        OSError: names are left, and none of them can be deleted.
    """
    folder, budget, failure = containers / FOLDER, most, None
    try:
        places = [entry.path for entry in os.scandir(folder)]
    except FileNotFoundError:
        return False
    for place in places:
        try:
            budget -= _delete(place, folder, budget)
        except OSError as error:
            failure = error
        if budget <= 0:
            return True
    with suppress(OSError):
        folder.rmdir()
    if failure is not None and budget == most:
        raise failure
    return folder.exists()


def _delete(place: str, folder: Path, most: int) -> int:
    """
    Delete *place* as far as *most* names allow, and return how many names that took.
    """
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
