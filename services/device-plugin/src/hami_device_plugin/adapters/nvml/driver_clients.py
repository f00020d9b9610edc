"""
Name the other processes that have the NVIDIA driver open.

Sees the processes of its pid namespace: all of the host's with `hostPID`, else only its own.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_DEVICE_FILES = "/dev/nvidia"


def driver_clients(proc: Path = Path("/proc")) -> list[str]:
    """Return `<command> (pid <pid>)` of each other process below *proc* with an open device file of the driver."""
    return sorted(
        f"{_command(process)} (pid {process.name})"
        for process in proc.iterdir()
        if process.name.isdigit() and process.name != str(os.getpid()) and any(_driver_files(process))
    )


def _driver_files(process: Path) -> Iterator[str]:
    try:
        links = list((process / "fd").iterdir())
    except OSError:
        # It has ended, or this process has no right to read it.
        return
    for link in links:
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if target.startswith(_DEVICE_FILES):
            yield target


def _command(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return "a process"
