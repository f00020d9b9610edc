"""
Files are written completely or not at all.
"""

import fcntl
import mmap
import os
from pathlib import Path

import pytest

from hami_device_plugin.adapters.files import remove_temporaries, write_atomically
from testbed.disks import DISK_BYTES, fill


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


def test_temporary_file_of_another_live_instance_stays(host: Path) -> None:
    """Instances in two containers may have the same PID; only what no process holds is removed."""
    (host / ".f.dead.tmp").touch()
    with (host / ".f.alive.tmp").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_temporaries(host, "f")

        assert [host / ".f.alive.tmp"] == list(host.iterdir())
    remove_temporaries(host, "f")
    assert [] == list(host.iterdir())


def test_two_writes_never_share_a_temporary_file(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if they have the same PID and both are at their first write: the names are random."""
    names = []

    def rename(path: Path, _target: Path) -> None:
        names.append(path.name)
        path.unlink()

    monkeypatch.setattr(Path, "replace", rename)
    for _ in range(2):
        write_atomically(host / "f", b"x")

    assert 2 == len(set(names))
    assert str(os.getpid()) not in names[0]


def test_full_disk_leaves_the_old_file_and_nothing_else(full_disk: Path) -> None:
    """The error names the file."""
    (full_disk / "f").write_bytes(b"old")
    fill(full_disk)

    with pytest.raises(OSError, match=f"No space left on device: '{full_disk}/f'"):
        write_atomically(full_disk / "f", bytes(2 * DISK_BYTES))
    assert b"old" == (full_disk / "f").read_bytes()
    assert {"f", "filling"} == {path.name for path in full_disk.iterdir()}
