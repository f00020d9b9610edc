"""
Ask NVML what MPS needs, and have devices take programs of MPS only.

Source: NVML API reference, nvmlDeviceGetComputeMode, nvmlDeviceSetComputeMode, nvmlDeviceGetCudaComputeCapability
"""

from collections.abc import Sequence

import pynvml

from hami_device_plugin.adapters.nvml.devices import optional
from hamicommon.runtime.host.nvml import Nvml, NvmlError, text

FIRST_DRIVER = 615
"""The first driver with namespaces, protocol 3 of MPS."""
_VOLTA = (7, 0)
"""The first compute capability whose clients of MPS have their own address spaces and a limited part."""


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


async def set_compute_mode(nvml: Nvml, uuids: Sequence[str], *, is_exclusive: bool) -> None:
    """
    Have the GPUs *uuids* take programs of MPS only, or all.

    Raises:
        NvmlError: a GPU does not take it.
    """
    await nvml.call(_set_compute_mode, tuple(uuids), is_exclusive)


def _set_compute_mode(uuids: Sequence[str], is_exclusive: bool) -> None:
    wanted = pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if is_exclusive else pynvml.NVML_COMPUTEMODE_DEFAULT
    for uuid in uuids:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
            if pynvml.nvmlDeviceGetComputeMode(handle) != wanted:
                pynvml.nvmlDeviceSetComputeMode(handle, wanted)
        except pynvml.NVMLError as error:
            raise NvmlError(f"device {uuid}: its compute mode cannot be changed: {error}") from error


async def namespaces_problem(nvml: Nvml, uuids: Sequence[str]) -> str | None:
    """
    Return why MPS has no namespaces for clients on the GPUs *uuids*; None if it has.

    Raises:
        NvmlError: a GPU does not answer.
    """
    return await nvml.call(_namespaces_problem, tuple(uuids))


def _namespaces_problem(uuids: Sequence[str]) -> str | None:
    version = text(pynvml.nvmlSystemGetDriverVersion())
    if int(version.partition(".")[0]) < FIRST_DRIVER:
        return f"driver {version}: it needs r{FIRST_DRIVER} or later"
    for uuid in uuids:
        try:
            problem = _device_problem(pynvml.nvmlDeviceGetHandleByUUID(uuid))
        except pynvml.NVMLError as error:
            raise NvmlError(f"device {uuid}: {error}") from error
        if problem is not None:
            return f"device {uuid} {problem}"
    return None


def _device_problem(handle: object) -> str | None:
    capability = tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    if capability < _VOLTA:
        return f"has compute capability {'.'.join(map(str, capability))}: it needs Volta (7.0) or later"
    mode, _ = optional(lambda: pynvml.nvmlDeviceGetMigMode(handle), (pynvml.NVML_DEVICE_MIG_DISABLE, None))
    return None if mode == pynvml.NVML_DEVICE_MIG_DISABLE else "is in MIG mode"
