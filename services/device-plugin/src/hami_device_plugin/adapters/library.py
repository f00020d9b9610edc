"""
Install the library that containers preload, beside the versions that running containers still use.

Owns `libvgpu.so.<version>` and `ld.so.preload` in the hook directory. Must never write into a file that may be mapped:
a new file replaces it, and processes that have the old one open keep it.
"""

from collections.abc import Set
from pathlib import Path

from hami_device_plugin.adapters.files import remove_temporaries, write_atomically
from hami_device_plugin.decide.allocation import Library
from hamicommon.errors import HamiError

NAME = "libvgpu.so"
PRELOAD_NAME = "ld.so.preload"


class LibraryError(HamiError):
    """The library cannot be installed."""


def install(source: Path, directory: Path, version: str) -> Path:
    """
    Copy the library at *source* to `libvgpu.so.<version>` in *directory*, and return that path.

    Raises:
        LibraryError: *source* cannot be read, or *directory* cannot be written.
    """
    target = directory / f"{NAME}.{version}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        remove_temporaries(directory, NAME)
        write_atomically(target, source.read_bytes(), mode=0o755)
    except OSError as error:
        raise LibraryError(f"--library {source} cannot be installed as {target}: {error.strerror}") from error
    return target


def write_preload(directory: Path) -> None:
    """
    Write the file that makes a container's dynamic linker load the library.

    Raises:
        LibraryError: *directory* cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / PRELOAD_NAME, f"{directory / NAME}\n".encode())
    except OSError as error:
        raise LibraryError(f"{directory / PRELOAD_NAME} cannot be written: {error.strerror}") from error


def host_library(directory: Path, version: str) -> Library:
    """
    Return the library to mount: this version's file, or else the unversioned one, which HAMi's installer leaves.
    """
    versioned = directory / f"{NAME}.{version}"
    return Library(str(versioned)) if versioned.exists() else Library(str(directory / NAME), is_hamis=True)


def remove_unused(directory: Path, version: str, in_use: Set[str]) -> list[str]:
    """
    Remove the versions of the library other than *version* whose paths are not *in_use*; return their names.

    The unversioned file stays: it belongs to another installer.
    """
    keep = {f"{NAME}.{version}"}
    stale = [path for path in directory.glob(f"{NAME}.*") if path.name not in keep and str(path) not in in_use]
    for path in stale:
        path.unlink(missing_ok=True)
    return sorted(path.name for path in stale)
