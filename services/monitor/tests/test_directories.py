"""
Listing and deleting container directories.
"""

import os
import time

import pytest

from hami_monitor.adapters.directories import NAMES_EACH_STEP, Directories
from hami_monitor.decide.containers import FILE_NAMES_MAX, ContainerKey, Refusal, choose_region_file

from .region_files import HookPath, a_region


def test_folder_that_does_not_exist_yet_is_empty(hook_path: HookPath) -> None:
    """As before the first container starts."""
    assert ((), ()) == Directories(str(hook_path.path)).scan()


def test_container_directories_are_told_from_everything_else(hook_path: HookPath) -> None:
    """Files, links and names with a leading dot are ignored; a directory of another name is reported and kept."""
    hook_path.add("p2_b", a_region())
    hook_path.add("p1_a")
    hook_path.add("lost+found")
    hook_path.add(".removed")
    (hook_path.containers / "p3_file").touch()
    (hook_path.containers / "p4_link").symlink_to(hook_path.containers / "p1_a")

    found, odd = Directories(str(hook_path.path)).scan()

    assert [
        (ContainerKey("p1", "a"), ("libvgpu.so",)),
        (ContainerKey("p2", "b"), ("libvgpu.so", "r.cache")),
    ] == [(directory.key, directory.file_names) for directory in found]
    assert ("lost+found",) == odd


@pytest.mark.parametrize("modified", [1_000_000, 4_000_000_000])
def test_age_is_not_what_a_container_says(hook_path: HookPath, modified: int) -> None:
    """
    A container may give its directory any time of modification, also one in the future; the change has its own.

    A directory that is gone has none.
    """
    hook_path.add("p1_a")
    os.utime(hook_path.containers / "p1_a", (5, modified))
    there, gone = ContainerKey("p1", "a"), ContainerKey("p2", "a")

    changed = Directories(str(hook_path.path)).changed_seconds([there, gone])

    assert [there] == list(changed)
    assert abs(time.time() - changed[there]) < 600


def test_directory_is_deleted_with_all_that_is_in_it(hook_path: HookPath) -> None:
    """A second deletion is no error; a link inside is deleted, not followed."""
    outside = hook_path.path / "outside"
    hook_path.add("p1_a", a_region())
    outside.mkdir()
    (outside / "kept").touch()
    (hook_path.containers / "p1_a" / "link").symlink_to(outside)
    directories = Directories(str(hook_path.path))
    [directory], _ = directories.scan()

    directories.remove(directory.key)
    directories.remove(directory.key)
    assert ((), ()) == directories.scan()
    while directories.delete_some():
        pass

    assert [] == list(hook_path.containers.iterdir())
    assert (outside / "kept").exists()


def test_deep_directory_is_deleted_in_small_steps(hook_path: HookPath) -> None:
    """A container may nest directories as deep as it likes; each step takes a few names."""
    deep = hook_path.add("p1_a").parent
    here = os.open(deep, os.O_RDONLY)
    for _ in range(3 * NAMES_EACH_STEP):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    directories = Directories(str(hook_path.path))
    [directory], _ = directories.scan()

    directories.remove(directory.key)
    steps = 0
    while directories.delete_some():
        steps += 1

    assert 3 <= steps <= 12
    assert [] == list(hook_path.containers.iterdir())


def test_flood_of_files_does_not_cost_the_others_a_round(hook_path: HookPath) -> None:
    """Only so many names are read, and the region is refused."""
    directory = hook_path.add("p1_a").parent
    for number in range(FILE_NAMES_MAX + 100):
        (directory / f"{number}.txt").touch()

    [found], _ = Directories(str(hook_path.path)).scan()

    assert FILE_NAMES_MAX == len(found.file_names)
    assert Refusal.TOO_MANY_FILES is choose_region_file(found.file_names)
