"""
Read and set the limits on device memory that NVML has for a cgroup, in a process of its own.
"""

import os
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
    except (n.NVMLError_NotFound, n.NVMLError_NotSupported):
        print("none")
"""

_SET = """
import sys
import pynvml as n
n.nvmlInit()
for uuid, size in (argument.split("=") for argument in sys.argv[2:]):
    limits = n.c_nvmlSetMemoryLimits_v1_t(sys.argv[1].encode(), 0, int(size))
    n.nvmlDeviceSetMemoryLimits_v1(n.nvmlDeviceGetHandleByUUID(uuid), limits)
"""


NO_LIMIT = 2**64 - 1
"""The hard limit that lets a cgroup have all that there is."""


def memory_limits(cgroup: str | Path, variables: Mapping[str, str]) -> list[str]:
    """
    Return the soft and the hard limit of each device in bytes for the folder *cgroup*; `none` if the driver has none.

    *variables* are the whole environment of the process; they lead to the driver.
    """
    command = [sys.executable, "-c", _READ, str(cgroup)]
    return subprocess.run(command, env=variables, capture_output=True, check=True, text=True).stdout.splitlines()


def limit_memory(cgroup: str | Path, limits: Mapping[str, int], variables: Mapping[str, str]) -> None:
    """Limit the folder *cgroup* to so many bytes of each device, by UUID, as root; *variables* as above."""
    as_root = [] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user"]
    pairs = [f"{uuid}={size}" for uuid, size in limits.items()]
    subprocess.run([*as_root, sys.executable, "-c", _SET, str(cgroup), *pairs], env=dict(variables), check=True)
