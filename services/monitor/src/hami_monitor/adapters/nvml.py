"""
Read the Node's devices from the NVIDIA driver. The only module with pynvml.

The first reading opens NVML. Any error closes it, and the next reading opens it again.
Neighbours: `hamicommon.runtime.nvml` owns NVML's thread and deadlines, `observation` shows the readings.
Source: https://docs.nvidia.com/deploy/nvml-api/
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pynvml

from hami_monitor.decide.observation import HostDevice
from hamicommon.runtime.nvml import Nvml, NvmlError, NvmlHangError

READ_SECONDS = 10.0
"""Longest wait for a reading of all devices."""
_UNKNOWN = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION})
"""Errors for a value that a device does not have, as a device in MIG mode has no utilization."""


class Driver:
    """The NVIDIA driver of the Node."""

    def __init__(self, root: str = "/driver-root") -> None:
        """Prepare; *root* is where the driver's root is mounted here."""
        self._root = root
        self._nvml = Nvml()

    async def devices(self) -> tuple[HostDevice, ...]:
        """
        Return every device of the Node, in the driver's order; open NVML if it is closed.

        Raises:
            NvmlError: the driver is missing, fails, or has not answered in time. NVML is closed unless it hangs.
        """
        if not self._nvml.is_open:
            await self._nvml.open(self._root)
        try:
            return await self._nvml.call(_devices, seconds=READ_SECONDS)
        except NvmlHangError:
            raise
        except NvmlError:
            with suppress(NvmlError):
                await self._nvml.close()
            raise


def _devices() -> tuple[HostDevice, ...]:
    return tuple(_device(index) for index in range(pynvml.nvmlDeviceGetCount()))


def _device(index: int) -> HostDevice:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = _known(pynvml.nvmlDeviceGetMemoryInfo, handle)
    utilization = _known(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return HostDevice(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        memory_used_bytes=None if memory is None else int(memory.used),
        utilization_percent=None if utilization is None else int(utilization.gpu),
        memory_utilization_percent=None if utilization is None else int(utilization.memory),
    )


def _known(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what *function* returns; None if the device has no such value."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _UNKNOWN:
            return None
        raise


def _text(value: str | bytes) -> str:
    """Return *value* as text; its type depends on the version of the binding."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
