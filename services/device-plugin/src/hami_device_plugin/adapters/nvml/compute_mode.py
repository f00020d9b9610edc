"""
Ask NVML whether a GPU refuses the programs that are no clients of MPS.

Source: NVML API reference, nvmlDeviceGetComputeMode
"""

from collections.abc import Sequence

import pynvml

from hamicommon.runtime.host.nvml import Nvml, NvmlError


async def compute_mode_problem(nvml: Nvml, uuids: Sequence[str]) -> str | None:
    """
    Return which of the GPUs *uuids* also takes programs without MPS; None if none does.

    Raises:
        NvmlError: a GPU does not answer.
    """
    return await nvml.call(_problem, tuple(uuids))


def _problem(uuids: Sequence[str]) -> str | None:
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
