"""
Ask NVML whether the driver can limit the memory of cgroups, and have it do so.

Source: NVML API reference, nvmlDeviceSetMemoryLimits_v1
"""

from collections.abc import Mapping, Sequence

import pynvml

from hami_device_plugin.adapters.nvml.devices import UNSUPPORTED, optional
from hamicommon.runtime.host.nvml import OPEN_SECONDS, Nvml, NvmlError, text

NO_LIMIT = pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX
"""The hard limit that lets a cgroup have all that there is."""
_NEEDS = "it needs r615 or later, cgroup v2 and a GPU without MIG"


async def pci_addresses(nvml: Nvml, uuids: Sequence[str]) -> Mapping[str, str]:
    """
    Return the address on the PCI bus of each of the GPUs *uuids* that answers, such as `00000000:02:00.0`.

    Raises:
        NvmlError: the driver does not answer.
    """
    return await nvml.call(_pci_addresses, tuple(uuids), seconds=OPEN_SECONDS)


async def limits_problem(nvml: Nvml, uuids: Sequence[str], cgroup: str) -> str | None:
    """
    Return why the driver cannot limit memory on each of the GPUs *uuids*; None if it can.

    Sets limits that allow everything for *cgroup*, the folder of a cgroup below the root. Reading would not tell: a
    driver says of a cgroup without a limit, and of the root, that the GPU does not support any. A GPU that does not
    answer counts only if none does.

    Raises:
        NvmlError: no GPU answers.
    """
    return await nvml.call(_limits_problem, tuple(uuids), cgroup, seconds=OPEN_SECONDS)


def _pci_addresses(uuids: Sequence[str]) -> Mapping[str, str]:
    found = {}
    for uuid in uuids:
        try:
            found[uuid] = text(pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid)).busId)
        except pynvml.NVMLError:
            continue
    return found


def _limits_problem(uuids: Sequence[str], cgroup: str) -> str | None:
    silent, answers = "there is no GPU", 0
    for uuid in uuids:
        try:
            problem = _limit_problem(uuid, cgroup)
        except UNSUPPORTED as error:
            problem = f"{error}; {_NEEDS}"
        except pynvml.NVMLError_NoPermission as error:
            problem = f"{error}; the plugin needs the capability SYS_ADMIN, and to write {cgroup}"
        except pynvml.NVMLError as error:
            silent = f"device {uuid}: {error}"
            continue
        answers += 1
        if problem is not None:
            return f"driver {text(pynvml.nvmlSystemGetDriverVersion())}, device {uuid}: {problem}"
    if not answers:
        raise NvmlError(silent)
    return None


def _limit_problem(uuid: str, cgroup: str) -> str | None:
    """Return why the GPU has no limits although it takes one."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    set_limit(handle, cgroup, NO_LIMIT)
    mode, _ = optional(lambda: pynvml.nvmlDeviceGetMigMode(handle), (pynvml.NVML_DEVICE_MIG_DISABLE, None))
    if mode != pynvml.NVML_DEVICE_MIG_DISABLE:
        return f"it is in MIG mode, in which it takes limits and holds none; {_NEEDS}"
    return None


def set_limit(handle: object, cgroup: str, size_bytes: int) -> None:
    """
    Limit *cgroup* on the GPU of *handle*. A soft limit would stay in the cgroups above when the cgroup is gone.

    Raises:
        NVMLError: the driver does not take it.
    """
    pynvml.nvmlDeviceSetMemoryLimits_v1(handle, pynvml.c_nvmlSetMemoryLimits_v1_t(cgroup.encode(), 0, size_bytes))


async def read_limit(nvml: Nvml, uuid: str, cgroup: str) -> int | None:
    """
    Return the hard limit of *cgroup* on the GPU *uuid*; None if it has none.

    Raises:
        NvmlError: the GPU does not answer, or the cgroup is gone.
    """
    return await nvml.call(_read_limit, uuid, cgroup)


async def restore_limit(nvml: Nvml, uuid: str, cgroup: str, size_bytes: int | None) -> int | None:
    """
    Limit *cgroup* on the GPU *uuid*, and return the limit that it then has; None is no limit.

    A kernel may ignore a limit below what is used, and a driver refuse it.

    Raises:
        NvmlError: the driver does not take it.
    """
    return await nvml.call(_restore_limit, uuid, cgroup, size_bytes)


def _read_limit(uuid: str, cgroup: str) -> int | None:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(cgroup.encode())
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(pynvml.nvmlDeviceGetHandleByUUID(uuid), limits)
    except (pynvml.NVMLError_NotFound, *UNSUPPORTED):
        return None
    return None if limits.hardLimit == NO_LIMIT else int(limits.hardLimit)


def _restore_limit(uuid: str, cgroup: str, size_bytes: int | None) -> int | None:
    set_limit(pynvml.nvmlDeviceGetHandleByUUID(uuid), cgroup, NO_LIMIT if size_bytes is None else size_bytes)
    return _read_limit(uuid, cgroup)
