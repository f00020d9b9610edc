"""
Install the library that containers preload and the hooks that runtimes run, beside the versions still in use.

Owns `libvgpu.so.<version>`, `nvidia-cdi-hook.<version>`, `hami-limit-hook.<version>` and `ld.so.preload` in the hook
directory. Must never write into a file that may be mapped: a new file replaces it, and processes that have the old one
open keep it.
"""

from collections.abc import Set
from pathlib import Path

from hami_device_plugin.decide.allocate.allocation import Library
from hamicommon.errors import HamiError
from hamicommon.runtime.host.atomic_file import remove_temporaries, write_atomically

NAME = "libvgpu.so"
HOOK_NAME = "nvidia-cdi-hook"
LIMIT_HOOK_NAME = "hami-limit-hook"
PRELOAD_NAME = "ld.so.preload"


class LibraryError(HamiError):
    """A file cannot be installed on the host."""


def versioned(directory: Path, version: str, name: str = NAME) -> Path:
    """Return the path of the file *name* of this version in *directory*."""
    return directory / f"{name}.{version}"


def install(source: Path, directory: Path, version: str, name: str = NAME) -> Path:
    """
    Copy *source* to `<name>.<version>` in *directory*, and return that path.

    Raises:
        LibraryError: *source* cannot be read, or *directory* cannot be written.
    """
    target = versioned(directory, version, name)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        remove_temporaries(directory, name)
        write_atomically(target, source.read_bytes(), mode=0o755)
    except OSError as error:
        raise LibraryError(f"{source} cannot be installed as {target}: {error.strerror}") from error
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
    """Return the library to mount: this version's file, or else the unversioned one, which HAMi's installer leaves."""
    ours = versioned(directory, version)
    return Library(str(ours)) if ours.exists() else Library(str(directory / NAME), is_hamis=True)


def remove_unused(directory: Path, version: str, in_use: Set[str]) -> list[str]:
    """
    Remove the versions of library and hooks other than *version* whose paths are not *in_use*; return their names.

    The unversioned library stays: it belongs to another installer.
    """
    names = (NAME, HOOK_NAME, LIMIT_HOOK_NAME)
    keep = {versioned(directory, version, name) for name in names}
    found = [path for name in names for path in directory.glob(f"{name}.*")]
    stale = [path for path in found if path not in keep and str(path) not in in_use]
    for path in stale:
        path.unlink(missing_ok=True)
    return sorted(path.name for path in stale)
