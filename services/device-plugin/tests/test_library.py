"""
The library in the hook directory.
"""

import signal
from pathlib import Path

import pytest
from device_plugin_child import call_in_child
from device_plugin_crash import LIBRARY_STEPS, install_library, install_until

from hami_device_plugin.adapters import library
from hami_device_plugin.decide.allocate.allocation import Library
from hamicommon.errors import HamiError


def test_library_is_installed_beside_others(host: Path) -> None:
    """Even if a file of the same version has other contents."""
    source = host / "source.so"
    source.write_bytes(b"new")
    (host / "libvgpu.so.1").write_bytes(b"old")

    assert host / "libvgpu.so.2" == library.install(source, host, "2")
    assert (b"old", b"new") == tuple((host / f"libvgpu.so.{v}").read_bytes() for v in "12")


@pytest.mark.parametrize("step", LIBRARY_STEPS)
def test_library_whose_installation_is_killed_is_absent_or_whole(step: str, host: Path) -> None:
    """Containers of the older version keep theirs, and the next process installs it and leaves nothing else."""
    (host / "vgpu").mkdir()
    (host / "vgpu/libvgpu.so.1").write_bytes(b"old")
    (host / "source.so").write_bytes(b"new" * 100_000)
    assert -signal.SIGKILL == call_in_child(install_until, host, step)
    assert not (host / "vgpu/libvgpu.so.2").exists()

    install_library(host)
    assert {"libvgpu.so.1": b"old", "libvgpu.so.2": b"new" * 100_000} == {
        path.name: path.read_bytes() for path in (host / "vgpu").iterdir()
    }


def test_unversioned_library_is_hamis(host: Path) -> None:
    """It is mounted if this version's file is missing."""
    (host / "libvgpu.so.2").touch()

    assert Library(str(host / "libvgpu.so.2")) == library.host_library(host, "2")
    assert Library(str(host / "libvgpu.so"), is_hamis=True) == library.host_library(host, "3")


def test_library_that_is_missing_is_named(host: Path) -> None:
    """The message has source and target."""
    with pytest.raises(HamiError, match=r"/nowhere.so cannot be installed as .*libvgpu.so.2: No such file"):
        library.install(Path("/nowhere.so"), host, "2")


def test_libraries_nobody_uses_are_removed(host: Path) -> None:
    """This version, used ones, and another installer's unversioned file stay."""
    for name in ("libvgpu.so", "libvgpu.so.1", "libvgpu.so.2", "libvgpu.so.3"):
        (host / name).touch()

    assert ["libvgpu.so.1"] == library.remove_unused(host, "3", {str(host / "libvgpu.so.2")})
    assert ["libvgpu.so", "libvgpu.so.2", "libvgpu.so.3"] == sorted(path.name for path in host.iterdir())


@pytest.mark.parametrize("name", ["nvidia-cdi-hook", "hami-limit-hook"])
def test_hooks_nobody_uses_are_removed(name: str, host: Path) -> None:
    """A container that restarts still runs the version in its spec."""
    for version in ("1", "2", "3"):
        (host / f"{name}.{version}").touch()

    assert [f"{name}.1"] == library.remove_unused(host, "3", {str(host / f"{name}.2")})


def test_preload_file_names_the_library_as_containers_see_it(host: Path) -> None:
    """One line, for the dynamic linker."""
    library.write_preload(host / "vgpu")

    assert f"{host}/vgpu/libvgpu.so\n" == (host / "vgpu/ld.so.preload").read_text()
