"""
Which processes hold the driver.
"""

import os
from pathlib import Path

from hami_device_plugin.adapters.nvml.driver_clients import driver_clients


def a_process(proc: Path, pid: int, command: str, *files: str) -> None:
    """Add a process with open *files*."""
    (proc / str(pid) / "fd").mkdir(parents=True)
    (proc / str(pid) / "comm").write_text(f"{command}\n")
    for number, file in enumerate(files):
        (proc / str(pid) / "fd" / str(number)).symlink_to(file)


def test_processes_with_a_device_file_are_named(tmp_path: Path) -> None:
    """Not this one, and not one without."""
    a_process(tmp_path, 7, "nv-hostengine", "/dev/null", "/dev/nvidiactl")
    a_process(tmp_path, 8, "sh", "/dev/null")
    a_process(tmp_path, os.getpid(), "hami", "/dev/nvidia0")
    (tmp_path / "uptime").touch()

    assert ["nv-hostengine (pid 7)"] == driver_clients(tmp_path)
