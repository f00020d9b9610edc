"""
A bare machine sees its own files and none of this machine's, and ends with its command.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import bare_machine
from testbed.folders import FolderInUseError

LINKS = {"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"}
"""What a Debian has in place of these folders."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder of a machine that shows the programs of this one, and has nothing else."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("a bare machine takes root and unshare")
    for name in ("dev", "sys", "proc", "run", "mnt", "usr", "root", "srv"):
        (tmp_path / name).mkdir()
    for name, target in LINKS.items():
        (tmp_path / name).symlink_to(target)
    return tmp_path


def _run(root: Path, script: str) -> int:
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    return bare_machine.run(root, "/srv", ["sh", "-c", script], environment, ["/usr"])


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            yield path.read_bytes()


def test_command_sees_the_machine_alone(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing of this machine's but what is shown, an empty HOME, and processes counted from 1."""
    assert 0 == _run(root, "pwd; ls /; ls -A ~; test -d /usr/bin; ls -d /proc/1; ls /mnt")

    folders = ["bin", "dev", "lib", "lib64", "mnt", "proc", "root", "run", "sbin", "srv", "sys", "usr"]
    assert ["/srv", *folders, "/proc/1"] == capfd.readouterr().out.split()


def test_status_of_the_command_is_returned(root: Path) -> None:
    """As a check that fails."""
    assert 7 == _run(root, "exit 7")


def test_process_that_lost_its_parent_is_reaped(root: Path) -> None:
    """Tests of ours wait until a process they killed is gone."""
    assert 0 == _run(root, "sh -c 'sleep 0.1 & echo $! > /srv/pid'; sleep 0.5; ! test -d /proc/$(cat /srv/pid)")


def test_nothing_is_left(root: Path) -> None:
    """What the command left running ends with the machine, and no mount is there."""
    mark = f"1{os.getpid()}"
    assert 0 == _run(root, f"sleep {mark} & setsid sleep {mark} &")

    assert mark.encode() not in b"".join(_command_lines())
    assert str(root) not in Path("/proc/self/mountinfo").read_text()
    assert [] == list((root / "usr").iterdir())


def test_folder_of_a_killed_run_is_replaced_and_that_of_a_running_one_is_kept(tmp_path: Path) -> None:
    """The lock ends with its process, the folder does not."""
    folder = tmp_path / "machine"
    folder.mkdir()
    (folder / "left").touch()

    with bare_machine.empty(folder):
        assert [] == list(folder.iterdir())
        (folder / "mine").touch()
        with pytest.raises(FolderInUseError, match="is in use"), bare_machine.empty(folder):
            pass
        assert ["mine"] == [path.name for path in folder.iterdir()]
