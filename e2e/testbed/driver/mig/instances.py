"""
Make and list the MIG instances of a Node, as an administrator does.

Each call is a process of its own, so this one never holds the driver. Neighbour: `files` has what the driver shows.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = """
import json, sys
import pynvml as n
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
if sys.argv[1:]:
    assert n.nvmlDeviceSetMigMode(gpu, 1) == 0
    profile = int(sys.argv[1])
    for _ in range(2):
        n.nvmlGpuInstanceCreateComputeInstance(n.nvmlDeviceCreateGpuInstance(gpu, profile), 0)
found = {}
for number in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu)):
    try:
        instance = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
    except n.NVMLError_NotFound:
        continue
    found[n.nvmlDeviceGetUUID(instance)] = n.nvmlDeviceGetGpuInstanceId(instance)
print(json.dumps(found))
"""
_SMALLEST = 19
"""NVML's number of the profile with one slice."""


def instances(libraries: Path, hardware: Path) -> dict[str, int]:
    """Return the number of each instance of the first GPU by its UUID; *libraries* has the fake driver."""
    return _run(libraries, hardware)


def make_two(libraries: Path, hardware: Path) -> dict[str, int]:
    """Switch the first GPU to MIG, make two instances of the smallest profile, and return the same."""
    return _run(libraries, hardware, str(_SMALLEST))


def _run(libraries: Path, hardware: Path, *words: str) -> dict[str, int]:
    env = {**os.environ, "LD_LIBRARY_PATH": str(libraries), "FAKE_DRIVER_DIR": str(hardware)}
    done = subprocess.run([sys.executable, "-c", _PROGRAM, *words], env=env, capture_output=True, text=True, check=True)
    found: dict[str, int] = json.loads(done.stdout)
    return found
