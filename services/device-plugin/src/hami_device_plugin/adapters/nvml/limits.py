"""
Ask NVML whether the driver can limit the memory of cgroups, and MPS the compute of its clients.

Source: NVML API reference, nvmlDeviceGetMemoryLimits_v1, nvmlDeviceGetComputeMode
"""

from collections.abc import Sequence

import pynvml

from hami_device_plugin.adapters.nvml.devices import UNSUPPORTED
from hamicommon.runtime.host.nvml import OPEN_SECONDS, Nvml, NvmlError, text


async def limits_problem(nvml: Nvml, uuids: Sequence[str], cgroup: str) -> str | None:
    """
    Return why the driver cannot limit memory on each of the GPUs *uuids*; None if it can.

    *cgroup* is the folder of any cgroup. A GPU that does not answer counts only if none does.

    Raises:
        NvmlError: no GPU answers.
    """
    return await nvml.call(_limits_problem, tuple(uuids), cgroup, seconds=OPEN_SECONDS)


def _limits_problem(uuids: Sequence[str], cgroup: str) -> str | None:
    silent, answers = "there is no GPU", 0
    for uuid in uuids:
        try:
            _read_limits(uuid, cgroup)
        except UNSUPPORTED as error:
            version = text(pynvml.nvmlSystemGetDriverVersion())
            return f"driver {version}, device {uuid}: {error}; it needs r615 or later, cgroup v2 and a GPU without MIG"
        except pynvml.NVMLError as error:
            silent = f"device {uuid}: {error}"
        else:
            answers += 1
    if not answers:
        raise NvmlError(silent)
    return None


def _read_limits(uuid: str, cgroup: str) -> None:
    """Read the limits of *cgroup* on a GPU; there need not be any."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t(cgroup.encode())
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    except pynvml.NVMLError_NotFound:
        return


async def compute_mode_problem(nvml: Nvml, uuids: Sequence[str]) -> str | None:
    """
    Return which of the GPUs *uuids* also takes programs without MPS; None if none does.

    Raises:
        NvmlError: a GPU does not answer.
    """
    return await nvml.call(_compute_mode_problem, tuple(uuids))


def _compute_mode_problem(uuids: Sequence[str]) -> str | None:
    for uuid in uuids:
        try:
            mode = pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError as error:
            raise NvmlError(f"device {uuid}: {error}") from error
        if mode != pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS:
            return (
                f"device {uuid} is not in compute mode EXCLUSIVE_PROCESS, so a program that does not find the daemon "
                "would run without a limit"
            )
    return None
