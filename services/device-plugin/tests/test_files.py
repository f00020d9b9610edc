"""
Files are written completely or not at all, and no link is followed in a container's directory.
"""

import mmap
import os
from pathlib import Path

import pytest

from hami_device_plugin.adapters.files import prepare_container, write_atomically


def test_unchanged_file_is_not_written_again(host: Path) -> None:
    """A runtime that watches the directory is not woken."""
    assert write_atomically(host / "f", b"x")
    inode = (host / "f").stat().st_ino
    assert not write_atomically(host / "f", b"x")
    assert inode == (host / "f").stat().st_ino


def test_whoever_has_the_old_file_mapped_keeps_it(host: Path) -> None:
    """A running container's library does not change."""
    write_atomically(host / "f", b"old")
    with (host / "f").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        write_atomically(host / "f", b"new")

        assert b"old" == mapped[:]
    assert b"new" == (host / "f").read_bytes()


def test_region_of_the_last_run_is_cleared_where_it_is(host: Path) -> None:
    """A monitor that has it mapped sees zeros."""
    region = host / "c/r.cache"
    region.parent.mkdir()
    region.write_bytes(b"12345678")
    with region.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        prepare_container(region.parent, "r.cache")

        assert bytes(8) == mapped[:]


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo", "directory", "large"])
def test_trap_in_place_of_the_region_is_removed(kind: str, host: Path) -> None:
    """A container can create anything under the name; the target stays unchanged."""
    victim, region = host / "victim", host / "c/r.cache"
    victim.write_bytes(b"precious")
    region.parent.mkdir()
    match kind:
        case "symlink":
            region.symlink_to(victim)
        case "hardlink":
            region.hardlink_to(victim)
        case "fifo":
            os.mkfifo(region)
        case "directory":
            (region / "deep").mkdir(parents=True)
        case _:
            os.truncate(os.open(region, os.O_CREAT | os.O_WRONLY), 2**40)

    prepare_container(region.parent, "r.cache")

    assert b"precious" == victim.read_bytes()
    assert [] == list(region.parent.iterdir())


def test_link_in_place_of_the_directory_is_replaced(host: Path) -> None:
    """Its target is neither emptied nor made world-writable."""
    (host / "victim").mkdir(mode=0o700)
    (host / "victim/f").touch()
    (host / "c").symlink_to(host / "victim")

    prepare_container(host / "c", "r.cache")

    assert not (host / "c").is_symlink()
    assert (host / "victim/f").exists()
    assert 0o700 == (host / "victim").stat().st_mode & 0o777
