"""
MIG in short words, for the processes of test_mig.py. `index` is a GPU's; instances are named by their IDs.
"""

import random
from contextlib import suppress
from ctypes import byref, c_uint
from typing import Any, NoReturn

import pynvml as n

__all__ = [
    "churn",
    "clear",
    "compute_spans",
    "create",
    "create_compute",
    "destroy",
    "destroy_compute",
    "devices",
    "instances",
    "profiles",
    "read_for_ever",
    "remaining",
    "renew_compute",
    "set_mode",
    "spans",
]


def gpu(index: int) -> Any:
    """Return a handle."""
    return n.nvmlDeviceGetHandleByIndex(index)


def set_mode(index: int, mode: int) -> list[Any]:
    """Set the mode. Returns the status of its activation, and the current and the pending mode."""
    return [n.nvmlDeviceSetMigMode(gpu(index), mode), n.nvmlDeviceGetMigMode(gpu(index))]


def profiles(index: int) -> list[list[Any]]:
    """Return name, ID, slices, instances, multiprocessors and MiB of each profile."""
    found = []
    for kind in range(n.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = n.nvmlDeviceGetGpuInstanceProfileInfo(gpu(index), kind)
        except n.NVMLError_NotSupported:
            continue
        name = info.name.decode() if isinstance(info.name, bytes) else info.name
        counts = [info.id, info.sliceCount, info.instanceCount, info.multiprocessorCount, info.memorySizeMB]
        found.append([name, *counts])
    return found


def spans(index: int, profile: int) -> list[list[int]]:
    """Return where an instance may be, as start and size."""
    count, found = c_uint(), (n.c_nvmlGpuInstancePlacement_t * 8)()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu(index), profile, found, byref(count))
    return [[each.start, each.size] for each in found[: count.value]]


def remaining(index: int, profile: int) -> int:
    """Return how many more fit."""
    return int(n.nvmlDeviceGetGpuInstanceRemainingCapacity(gpu(index), profile))


def create(index: int, profile: int, start: int | None = None, size: int = 0) -> int:
    """Create a GPU instance, without a start at the first free place, and return its ID."""
    if start is None:
        created = n.nvmlDeviceCreateGpuInstance(gpu(index), profile)
    else:
        place = n.c_nvmlGpuInstancePlacement_t(start, size)
        created = n.nvmlDeviceCreateGpuInstanceWithPlacement(gpu(index), profile, byref(place))
    return int(n.nvmlGpuInstanceGetInfo(created).id)


def destroy(index: int, instance: int) -> None:
    """Destroy a GPU instance."""
    n.nvmlGpuInstanceDestroy(n.nvmlDeviceGetGpuInstanceById(gpu(index), instance))


def instances(index: int, *profiles: int) -> list[list[int]]:
    """Return ID, profile, start and size of the GPU instances of these profiles."""
    found = []
    for profile in profiles:
        count, handles = c_uint(), (n.c_nvmlGpuInstance_t * 8)()
        n.nvmlDeviceGetGpuInstances(gpu(index), profile, handles, byref(count))
        infos = [n.nvmlGpuInstanceGetInfo(handle) for handle in handles[: count.value]]
        found += [[info.id, info.profileId, info.placement.start, info.placement.size] for info in infos]
    return found


def compute_spans(index: int, instance: int, profile: int) -> list[list[int]]:
    """Return where a compute instance may be in a GPU instance."""
    count, found = c_uint(), (n.c_nvmlComputeInstancePlacement_t * 8)()
    within = n.nvmlDeviceGetGpuInstanceById(gpu(index), instance)
    n.nvmlGpuInstanceGetComputeInstancePossiblePlacements(within, profile, found, byref(count))
    return [[each.start, each.size] for each in found[: count.value]]


def create_compute(index: int, instance: int, profile: int) -> int:
    """Create a compute instance and return its ID."""
    within = n.nvmlDeviceGetGpuInstanceById(gpu(index), instance)
    created = n.nvmlGpuInstanceCreateComputeInstance(within, profile)
    return int(n.nvmlComputeInstanceGetInfo_v2(created).id)


def destroy_compute(index: int, instance: int, compute: int) -> None:
    """Destroy a compute instance."""
    within = n.nvmlDeviceGetGpuInstanceById(gpu(index), instance)
    n.nvmlComputeInstanceDestroy(n.nvmlGpuInstanceGetComputeInstanceById(within, compute))


def devices(index: int) -> list[list[Any]]:
    """Return index, name, MiB, GPU instance and compute instance of each MIG device."""
    found = []
    for position in range(n.nvmlDeviceGetMaxMigDeviceCount(gpu(index))):
        try:
            device = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(index), position)
        except n.NVMLError_NotFound:
            continue
        numbers = [n.nvmlDeviceGetGpuInstanceId(device), n.nvmlDeviceGetComputeInstanceId(device)]
        mib = n.nvmlDeviceGetMemoryInfo(device).total >> 20
        found.append([position, n.nvmlDeviceGetName(device), mib, *numbers])
    return found


def clear(index: int) -> None:
    """Destroy every instance of a GPU."""
    for *_, instance, compute in devices(index):
        destroy_compute(index, instance, compute)
    for instance, *_ in instances(index, 19, 14, 9):
        destroy(index, instance)


def renew_compute(index: int, instance: int, times: int) -> None:
    """Destroy a compute instance and create it again."""
    for _ in range(times):
        destroy_compute(index, instance, 0)
        create_compute(index, instance, 0)


def read_for_ever(index: int, position: int) -> NoReturn:
    """Read the memory of a MIG device, whenever there is one, for ever."""
    while True:
        with suppress(n.NVMLError):
            n.nvmlDeviceGetMemoryInfo(n.nvmlDeviceGetMigDeviceHandleByIndex(gpu(index), position))


def churn(index: int) -> NoReturn:
    """Create and destroy instances of a GPU for ever."""
    while True:
        with suppress(n.NVMLError):
            for _ in range(random.randint(1, 4)):
                create_compute(index, create(index, random.choice((19, 14, 9))), 0)
        with suppress(n.NVMLError):
            clear(index)
