"""
Files are written completely or not at all.
"""

import fcntl
import mmap
import os
from pathlib import Path

import pytest

from hamicommon.runtime.host.atomic_file import remove_temporaries, write_atomically
from testbed.disks import DISK_BYTES, fill, may_mount, small_disk


def test_unchanged_file_is_not_written_again(tmp_path: Path) -> None:
    """A runtime that watches the directory is not woken."""
    assert write_atomically(tmp_path / "f", b"x")
    inode = (tmp_path / "f").stat().st_ino
    assert not write_atomically(tmp_path / "f", b"x")
    assert inode == (tmp_path / "f").stat().st_ino


def test_whoever_has_the_old_file_mapped_keeps_it(tmp_path: Path) -> None:
    """A running container's library does not change."""
    write_atomically(tmp_path / "f", b"old")
    with (tmp_path / "f").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        write_atomically(tmp_path / "f", b"new")

        assert b"old" == mapped[:]
    assert b"new" == (tmp_path / "f").read_bytes()


def test_temporary_file_of_another_live_instance_stays(tmp_path: Path) -> None:
    """Instances in two containers may have the same PID; only what no process holds is removed."""
    (tmp_path / ".f.dead.tmp").touch()
    with (tmp_path / ".f.alive.tmp").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        remove_temporaries(tmp_path, "f")

        assert [tmp_path / ".f.alive.tmp"] == list(tmp_path.iterdir())
    remove_temporaries(tmp_path, "f")
    assert [] == list(tmp_path.iterdir())


def test_two_writes_never_share_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even if they have the same PID and both are at their first write: the names are random."""
    names = []

    def rename(path: Path, _target: Path) -> None:
        names.append(path.name)
        path.unlink()

    monkeypatch.setattr(Path, "replace", rename)
    for _ in range(2):
        write_atomically(tmp_path / "f", b"x")

    assert 2 == len(set(names))
    assert str(os.getpid()) not in names[0]


@pytest.mark.skipif(not may_mount(), reason="needs root, to mount a file system")
def test_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    """The error names the file."""
    with small_disk(tmp_path / "disk") as disk:
        (disk / "f").write_bytes(b"old")
        fill(disk)

        with pytest.raises(OSError, match=f"No space left on device: '{disk}/f'"):
            write_atomically(disk / "f", bytes(2 * DISK_BYTES))
        assert b"old" == (disk / "f").read_bytes()
        assert {"f", "filling"} == {path.name for path in disk.iterdir()}
