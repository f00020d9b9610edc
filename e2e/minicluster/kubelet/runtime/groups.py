"""
Folders that stand for control groups of version 2, on a machine that has version 1.

A group has the files that the kernel would make, as far as programs and the fake driver read them. The controller dmem
is two of them, which the fake driver reads and writes.
Must never touch the machine's own groups.
"""

import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

CONTROLLERS = "cgroup.controllers"
ENABLED = "cgroup.subtree_control"
DMEM = "dmem"
_DMEM_FILES = ("dmem.min", "dmem.max")


def make_group(root: Path, path: str, *, runtime: str = "runc") -> Path:
    """
    Make the group *path*, such as `/kubepods/pod1/c1`, and those above it, below *root*. Return its folder.

    The container runtime *runtime* makes the last one. runc enables all controllers for it, crun all but dmem.
    """
    *above, last = path.strip("/").split("/")
    folder = root
    for name in above:
        folder = _made(folder, name)
    if runtime == "crun" and not any(folder.glob("*/")):
        (folder / ENABLED).write_text(_words(word for word in (folder / ENABLED).read_text().split() if word != DMEM))
    return _made(folder, last)


def remove_group(folder: Path) -> None:
    """Remove a group, which has none below it, if it is there: at once, as the kernel does, whoever writes in it."""
    aside = folder.with_name(f".{folder.name}-removed")
    with suppress(FileNotFoundError):
        folder.rename(aside)
        shutil.rmtree(aside)


def write_controllers(folder: Path, controllers: Iterable[str]) -> None:
    """Give a group its *controllers*, and those below it the same."""
    text = _words(controllers)
    for name in (CONTROLLERS, ENABLED):
        (folder / name).write_text(text)


def _made(above: Path, name: str) -> Path:
    """Return the group *name*. It appears with all its files, and another process may make it at the same time."""
    folder = above / name
    if folder.exists():
        return folder
    controllers = [word.removeprefix("+") for word in (above / ENABLED).read_text().split()]
    fresh = Path(tempfile.mkdtemp(dir=above, prefix=".fresh-"))
    fresh.chmod(0o755)
    (fresh / "cgroup.type").write_text("domain\n")
    write_controllers(fresh, controllers)
    for file in _DMEM_FILES if DMEM in controllers else ():
        (fresh / file).touch()
        (fresh / file).chmod(0o666)
    try:
        fresh.rename(folder)
    except OSError:
        shutil.rmtree(fresh)
    return folder


def _words(words: Iterable[str]) -> str:
    return " ".join(words) + "\n"
