"""
Real limits of disks: a small file system in memory, and what fills it. Needs root.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

DISK_BYTES = 1 << 20


@contextmanager
def small_disk(place: Path, options: str = f"size={DISK_BYTES}") -> Iterator[Path]:
    """Mount a file system with *options* at *place*, and yield it."""
    place.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """Make the directory *place* read-only."""
    subprocess.run(["mount", "--bind", place, place], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", place], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", place], check=True)


def fill(disk: Path) -> None:
    """Use all space of *disk*."""
    with (disk / "filling").open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))


def may_mount() -> bool:
    """Return whether this process may mount."""
    return os.geteuid() == 0 and subprocess.run(["unshare", "-m", "true"], check=False).returncode == 0
