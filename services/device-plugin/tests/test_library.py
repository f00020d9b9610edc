"""
The library in the hook directory.
"""

from pathlib import Path

import pytest

from hami_device_plugin.adapters import library
from hami_device_plugin.decide.allocation import Library
from hamicommon.errors import HamiError


def test_library_is_installed_beside_others(host: Path) -> None:
    """Even if a file of the same version has other contents."""
    source = host / "source.so"
    source.write_bytes(b"new")
    (host / "libvgpu.so.1").write_bytes(b"old")

    assert host / "libvgpu.so.2" == library.install(source, host, "2")
    assert (b"old", b"new") == tuple((host / f"libvgpu.so.{v}").read_bytes() for v in "12")


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


def test_preload_file_names_the_library_as_containers_see_it(host: Path) -> None:
    """One line, for the dynamic linker."""
    library.write_preload(host / "vgpu")

    assert f"{host}/vgpu/libvgpu.so\n" == (host / "vgpu/ld.so.preload").read_text()
