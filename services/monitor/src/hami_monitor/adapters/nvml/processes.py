"""
Read the processes on one device, and the memory of control groups.

NVML lists a process for each kind of its work: compute, graphics, and compute through MPS. Its memory is the same in
each list.
Source: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

import pynvml

from hami_monitor.adapters.nvml.readings import known
from hami_monitor.decide.host import DeviceProcess

_COMPUTE, _MPS = pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetMPSComputeRunningProcesses
_LISTS = (
    (_COMPUTE, pynvml.nvmlDeviceGetComputeRunningProcesses_v2),
    (pynvml.nvmlDeviceGetGraphicsRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v2),
    (_MPS, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v2),
)
"""The function of each list, and the one of drivers before 510."""

_NO_SAMPLES = frozenset(
    {pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_INSUFFICIENT_SIZE},
)
"""No process has run, as the driver or as pynvml says it; or more have run between pynvml's two calls."""

_WITHOUT_LIMIT = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_NotFound, pynvml.NVMLError_OperatingSystem)
"""The cgroup has no limit, or is gone; or the driver has no limits at all."""


def read_processes(handle: Any, sampled_at: int) -> tuple[tuple[DeviceProcess, ...], int]:
    """
    Return the processes on the device, and when the newest sample of their use was taken, in the driver's clock.

    Their use is the mean of the samples after *sampled_at*.

    Raises:
        NVMLError: the device cannot be read.
    """
    used: dict[int, int | None] = {}
    pids: dict[Any, set[int]] = {}
    for newest, older in _LISTS:
        listed = tuple(_listed(handle, newest, older))
        pids[newest] = {process.pid for process in listed}
        for process in listed:
            # MIG instances are listed apart, and a process may use several.
            amounts = (used.get(process.pid), process.usedGpuMemory)
            used[process.pid] = max((int(amount) for amount in amounts if amount is not None), default=None)
    busy, sampled_at = _busy_percents(handle, sampled_at)
    alone = pids[_COMPUTE] - pids[_MPS]
    return tuple(DeviceProcess(pid, used[pid], busy.get(pid), pid in alone) for pid in sorted(used)), sampled_at


def used_by_cgroup(uuid: str, cgroups: Iterable[str]) -> Mapping[str, int]:
    """
    Return the bytes on the device *uuid* of each of *cgroups* that has a limit there; empty without such limits.

    A driver says of a cgroup without a limit that the device does not support any, or that the limit is the largest
    number. So each answer counts for its cgroup alone.
    """
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    found = {}
    for cgroup in cgroups:
        limits = pynvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=os.fsencode(cgroup))
        try:
            pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
        except pynvml.NVMLError_FunctionNotFound:
            return {}
        except _WITHOUT_LIMIT:
            continue
        if limits.hardLimit != pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX:
            found[cgroup] = int(limits.currentUsed)
    return found


def _listed(handle: Any, newest: Any, older: Any) -> Iterable[Any]:
    found = known(newest, handle)
    return (known(older, handle) or ()) if found is None else found


def _busy_percents(handle: Any, since: int) -> tuple[dict[int, float], int]:
    """Return the mean use of each pid over the samples after *since*, and the time of the newest one."""
    try:
        samples = known(pynvml.nvmlDeviceGetProcessUtilization, handle, since) or ()
    except pynvml.NVMLError as error:
        if error.value not in _NO_SAMPLES:
            raise
        return {}, since
    by_pid: dict[int, list[int]] = defaultdict(list)
    for sample in samples:
        if sample.timeStamp > since:
            by_pid[int(sample.pid)].append(int(sample.smUtil))
    newest = max((int(sample.timeStamp) for sample in samples), default=since)
    return {pid: fmean(values) for pid, values in by_pid.items()}, newest
