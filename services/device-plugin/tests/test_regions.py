"""
The directory of a container that starts, whatever an earlier container left in it.
"""

import mmap
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from device_plugin_capabilities import call_with_capabilities

from hami_device_plugin.adapters import regions
from hami_device_plugin.adapters.files import SELINUX, label_for_containers
from hami_device_plugin.adapters.regions import (
    REGION_BYTES_MAX,
    SPARE,
    cut_regions,
    premake_directory,
    prepare_directory,
    prepare_region,
    was_used,
    write_limits,
)
from hami_device_plugin.decide.allocate.cdi.spec import MARK_MODE
from hamicommon.runtime.host import removal
from hamicommon.runtime.host.removal import FOLDER, delete_some
from testbed.disks import read_only

TENANT = 4242


@pytest.fixture
def region(host: Path) -> Path:
    """Return the region of a container that has run; its directory is as the plugin made it."""
    path = host / "containers/uid_c/r.cache"
    prepare_region(path)
    path.write_bytes(b"12345678")
    return path


def names(directory: Path) -> list[str]:
    """Return the names in *directory*."""
    return sorted(path.name for path in directory.iterdir())


def test_region_of_the_last_run_is_cleared_where_it_is(region: Path) -> None:
    """A monitor that has it mapped sees zeros."""
    with region.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        prepare_region(region)

        assert bytes(8) == mapped[:]


def test_only_the_region_can_be_written_by_the_container(region: Path) -> None:
    """The directory is the plugin's, under any umask."""
    assert (0o755, 0o666) == tuple(path.stat().st_mode & 0o777 for path in (region.parent, region))


def test_region_survives_when_its_directory_is_replaced(region: Path) -> None:
    """An earlier version of the plugin gave containers the directory; a monitor has its region mapped."""
    region.parent.chmod(0o777)
    (region.parent / "libvgpu.so").touch()
    inode = region.stat().st_ino

    prepare_region(region)

    assert (inode, bytes(8)) == (region.stat().st_ino, region.read_bytes())
    assert ["r.cache"] == names(region.parent)


@pytest.mark.parametrize("prepare", [prepare_region, lambda region: prepare_directory(region.parent)])
def test_start_does_not_wait_for_names_that_a_container_left(prepare: Callable[[Path], None], region: Path) -> None:
    """They are moved aside in one step, and are all still there afterwards."""
    for number in range(500):
        (region.parent / str(number)).touch()

    prepare(region)

    [aside] = (region.parents[1] / FOLDER).iterdir()
    assert 500 == len([name for name in names(aside) if name != "r.cache"])


def test_what_was_set_aside_is_deleted_in_steps(region: Path) -> None:
    """At any depth, and no step takes more names than allowed."""
    deep = region.parent / "/".join("d" * 400)
    deep.mkdir(parents=True)
    for number in range(100):
        (region.parent / str(number)).touch()
    prepare_region(region)
    containers = region.parents[1]

    steps = 1
    while delete_some(containers, 10):
        steps += 1
        assert steps < 1000

    assert steps > 10
    assert ["uid_c"] == names(containers)


def test_deletion_that_a_kill_interrupted_is_finished_later(region: Path) -> None:
    """What was set aside is found by its folder; no process remembers it."""
    (region.parent / "left").touch()
    prepare_region(region)
    assert delete_some(region.parents[1], 1)

    while delete_some(region.parents[1], 1):
        pass

    assert ["uid_c"] == names(region.parents[1])


@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo", "directory", "large"])
def test_trap_in_place_of_the_region_is_removed(kind: str, host: Path, region: Path) -> None:
    """A container with the directory can create anything under the name; the target stays unchanged."""
    victim = host / "victim"
    victim.write_bytes(b"precious")
    region.unlink()
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

    prepare_region(region)

    assert b"precious" == victim.read_bytes()
    assert (["r.cache"], b"") == (names(region.parent), region.read_bytes())


def test_link_in_place_of_the_directory_is_replaced(host: Path) -> None:
    """Its target is neither emptied nor made world-writable."""
    (host / "victim").mkdir(mode=0o700)
    (host / "victim/r.cache").write_bytes(b"x")
    (host / "c").symlink_to(host / "victim")

    prepare_region(host / "c/r.cache")

    assert not (host / "c").is_symlink()
    assert b"x" == (host / "victim/r.cache").read_bytes()
    assert 0o700 == (host / "victim").stat().st_mode & 0o777


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o500, 0o000], ids=oct)
@pytest.mark.parametrize("has_fowner", [True, False])
def test_directory_that_a_container_took_over_is_replaced(
    mode: int, has_fowner: bool, region: Path, may_own: None
) -> None:
    """Even sticky and of another owner, and with no more capabilities than the chart gives."""
    (region.parent / "left").touch()
    os.chown(region.parent / "left", TENANT, TENANT)
    os.chown(region.parent, TENANT, TENANT)
    region.parent.chmod(mode)

    call_with_capabilities(has_fowner, prepare_region, region)

    assert (0o755, os.geteuid()) == (region.parent.stat().st_mode & 0o7777, region.parent.stat().st_uid)
    assert (["r.cache"], bytes(8)) == (names(region.parent), region.read_bytes())


@pytest.mark.parametrize("has_fowner", [True, False])
def test_region_that_a_container_took_over_is_writable_again(has_fowner: bool, region: Path, may_own: None) -> None:
    """Its owner and its mode are the container's to change; the next run has any user."""
    region.chmod(0o600)
    os.chown(region, TENANT, TENANT)

    call_with_capabilities(has_fowner, prepare_region, region)

    assert 0o666 == region.stat().st_mode & 0o777
    assert not any(region.read_bytes())


def test_region_shows_whether_a_container_has_had_it(region: Path) -> None:
    """The runtime marks it by its mode, and the library writes it; each start forgets both."""
    assert was_used(region)
    prepare_region(region)
    assert not was_used(region)

    region.chmod(MARK_MODE)
    assert was_used(region)
    prepare_region(region)
    assert not was_used(region)


def test_region_gets_the_label_that_every_container_may_use(region: Path, may_mount: None) -> None:
    """On a host with SELinux, a file below /usr/local has another type, which no container may write."""
    os.setxattr(region, SELINUX, b"system_u:object_r:usr_t:s0:c1,c2\0")

    prepare_region(region)

    assert b"system_u:object_r:container_file_t:s0\0" == os.getxattr(region, SELINUX)


def test_region_of_a_host_without_labels_gets_none(region: Path) -> None:
    """A label would be an error there."""
    prepare_region(region)

    assert SELINUX not in os.listxattr(region)


def test_label_that_cannot_be_changed_is_a_reason(region: Path, may_mount: None) -> None:
    """It has the file and both labels, and stops no start: the host may only once have had SELinux."""
    os.setxattr(region, SELINUX, b"system_u:object_r:usr_t:s0\0")

    with read_only(region.parent):
        assert (
            f"{region}: SELinux label system_u:object_r:usr_t:s0 cannot become "
            "system_u:object_r:container_file_t:s0: Read-only file system"
        ) == label_for_containers(region)


def test_region_is_cut_to_the_size_of_a_region(region: Path) -> None:
    """A container may grow it without end; what the library has mapped stays."""
    with region.open("r+b") as file:
        file.truncate(2**30)

    assert [str(region)] == cut_regions(region.parents[1])
    assert (REGION_BYTES_MAX, b"12345678") == (region.stat().st_size, region.read_bytes()[:8])
    assert [] == cut_regions(region.parents[1])


def test_limits_are_read_only_for_the_container_and_beside_the_region(region: Path) -> None:
    """Both are the plugin's. The next start keeps the directory, and changes the file by a rename."""
    write_limits(region.parent, b"first\n")
    file = region.parent / "limits"
    old, directory = file.stat().st_ino, region.parent.stat().st_ino

    prepare_region(region)
    write_limits(region.parent, b"second\n")

    assert ["limits", "r.cache"] == names(region.parent)
    assert (directory, b"second\n") == (region.parent.stat().st_ino, file.read_bytes())
    assert file.stat().st_ino != old
    assert (0o755, 0o644) == tuple(path.stat().st_mode & 0o777 for path in (file.parent, file))


def made_ahead(host: Path) -> tuple[Path, dict[str, int]]:
    """Return the region of a container whose directory was made ahead, and the inode of each of its files."""
    region = host / "containers/uid_c/r.cache"
    premake_directory(region.parent)
    return region, {path.name: path.stat().st_ino for path in region.parent.iterdir()}


def test_files_made_ahead_become_those_of_the_container(host: Path) -> None:
    """The start creates no file, which costs most of what it does, and leaves the same as without them."""
    region, inodes = made_ahead(host)
    assert {SPARE, "limits"} == inodes.keys()

    prepare_region(region)
    write_limits(region.parent, b"granted\n")

    assert ["limits", "r.cache"] == names(region.parent)
    assert (inodes[SPARE], inodes["limits"]) == (region.stat().st_ino, (region.parent / "limits").stat().st_ino)
    assert (b"", b"granted\n") == (region.read_bytes(), (region.parent / "limits").read_bytes())
    modes = [path.stat().st_mode & 0o777 for path in (region.parent, region, region.parent / "limits")]
    assert [0o755, 0o666, 0o644] == modes


@pytest.mark.parametrize("missing", [SPARE, "limits"])
def test_start_makes_what_was_not_made_ahead(missing: str, host: Path) -> None:
    """The plugin may have been killed between two files."""
    region, _ = made_ahead(host)
    (region.parent / missing).unlink()

    prepare_region(region)
    write_limits(region.parent, b"granted\n")

    assert ["limits", "r.cache"] == names(region.parent)
    assert (b"", b"granted\n") == (region.read_bytes(), (region.parent / "limits").read_bytes())


def test_directory_that_is_made_ahead_at_the_same_time_is_used(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch may show a Pod when the kubelet has called already."""
    region, set_aside = host / "containers/uid_c/r.cache", removal.set_aside

    def meanwhile(path: Path, containers: Path) -> Path | None:
        place = set_aside(path, containers)
        premake_directory(region.parent)
        return place

    monkeypatch.setattr(regions, "set_aside", meanwhile)
    prepare_region(region)
    write_limits(region.parent, b"granted\n")

    assert (["limits", "r.cache"], b"") == (names(region.parent), region.read_bytes())


def test_directory_of_a_container_that_ran_is_not_made_ahead(region: Path) -> None:
    """It has all it needs, and the container may still run."""
    premake_directory(region.parent)

    assert (["r.cache"], b"12345678") == (names(region.parent), region.read_bytes())


@pytest.mark.parametrize("name", [SPARE, "limits"])
@pytest.mark.parametrize("kind", ["symlink", "hardlink", "fifo"])
def test_trap_in_place_of_a_file_made_ahead_is_removed(kind: str, name: str, host: Path) -> None:
    """A container under the lock had such a directory, and may make it look like the plugin's."""
    region, _ = made_ahead(host)
    victim, trap = host / "victim", region.parent / name
    victim.touch()
    trap.unlink()
    match kind:
        case "symlink":
            trap.symlink_to(victim)
        case "hardlink":
            trap.hardlink_to(victim)
        case _:
            os.mkfifo(trap)

    prepare_region(region)
    write_limits(region.parent, b"granted\n")

    assert b"" == victim.read_bytes()
    assert ["limits", "r.cache"] == names(region.parent)
    assert (1, b"granted\n") == (region.stat().st_nlink, (region.parent / "limits").read_bytes())


def test_limits_that_a_kill_interrupted_leave_nothing(region: Path) -> None:
    """The next start removes the temporary file; the former limits stayed whole meanwhile."""
    write_limits(region.parent, b"first\n")
    (region.parent / ".limits.0123456789abcdef.tmp").write_bytes(b"fir")

    prepare_region(region)
    write_limits(region.parent, b"second\n")

    assert ["limits", "r.cache"] == names(region.parent)
    assert b"second\n" == (region.parent / "limits").read_bytes()


def test_folder_in_place_of_the_limits_is_removed(region: Path) -> None:
    """The container that restarts has its limits, and the region that the monitor has mapped."""
    (region.parent / "limits").mkdir()
    (region.parent / "limits/limits").write_bytes(b"first\n")
    inode = region.stat().st_ino

    prepare_region(region)
    write_limits(region.parent, b"second\n")

    assert b"second\n" == (region.parent / "limits").read_bytes()
    assert inode == region.stat().st_ino


def test_limits_that_a_power_cut_emptied_are_written_again(region: Path) -> None:
    """They do not wait for the disk, because each start of the container writes them."""
    write_limits(region.parent, b"first\n")
    file = region.parent / "limits"
    file.write_bytes(b"")

    write_limits(region.parent, b"first\n")

    assert b"first\n" == file.read_bytes()
