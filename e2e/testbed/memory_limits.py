"""
Read the limits on device memory that NVML has for a cgroup, in a process of its own.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

_READ = """
import sys
import pynvml as n
n.nvmlInit()
for index in range(n.nvmlDeviceGetCount()):
    found = n.c_nvmlGetMemoryLimits_v1_t(sys.argv[1].encode())
    try:
        n.nvmlDeviceGetMemoryLimits_v1(n.nvmlDeviceGetHandleByIndex(index), found)
        print(found.softLimit, found.hardLimit)
    except n.NVMLError_NotFound:
        print("none")
"""


def memory_limits(cgroup: str | Path, variables: Mapping[str, str]) -> list[str]:
    """
    Return the soft and the hard limit of each device in bytes for the folder *cgroup*, `none` without.

    *variables* are the whole environment of the process; they lead to the driver.
    """
    command = [sys.executable, "-c", _READ, str(cgroup)]
    return subprocess.run(command, env=variables, capture_output=True, check=True, text=True).stdout.splitlines()
