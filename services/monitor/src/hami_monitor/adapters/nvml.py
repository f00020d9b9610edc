"""
Read the Node's devices from the NVIDIA driver. The only module with pynvml.

The first reading opens NVML. Any error of the whole driver closes it, and the next reading opens it again. A device
that cannot be read is left out.
Neighbours: `hamicommon.runtime.nvml` owns NVML's thread and deadlines, `observation` shows the readings.
Source: https://docs.nvidia.com/deploy/nvml-api/
"""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

from hami_monitor.decide.observation import HostDevice
from hamicommon.runtime.nvml import Nvml, NvmlError, NvmlHangError, text

READ_SECONDS = 10.0
"""Longest wait for a reading of all devices."""
REOPEN_SECONDS = 60.0
"""A device that was lost answers only after NVML was opened again."""
_UNKNOWN = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION})
"""Errors for a value that a device does not have, as a device in MIG mode has no utilization."""


@dataclass(frozen=True, slots=True)
class Devices:
    """A reading of the Node's devices."""

    read: tuple[HostDevice, ...] = ()
    """Those that answer, in the driver's order."""
    unread: Mapping[int, str] = field(default_factory=dict)
    """Why a device cannot be read, by its index."""


class Driver:
    """The NVIDIA driver of the Node."""

    def __init__(self, root: str = "/driver-root") -> None:
        """Prepare; *root* is where the driver's root is mounted here."""
        self._root = root
        self._nvml = Nvml()
        self._opened = 0.0

    async def devices(self) -> Devices:
        """
        Read every device of the Node; open NVML if it is closed.

        Raises:
            NvmlError: the driver is missing, fails, or has not answered in time. NVML is closed unless it hangs.
        """
        if not self._nvml.is_open:
            await self._nvml.open(self._root)
            self._opened = time.monotonic()
        try:
            found = await self._nvml.call(_devices, seconds=READ_SECONDS)
        except NvmlHangError:
            raise
        except NvmlError:
            await self._close()
            raise
        if found.unread and time.monotonic() - self._opened > REOPEN_SECONDS:
            await self._close()
        return found

    async def let_go(self) -> str | None:
        """Hold the driver no more; return why it is still held, None if it is not."""
        try:
            await self._nvml.close()
        except NvmlHangError as error:
            return str(error)
        return None

    async def _close(self) -> None:
        with suppress(NvmlError):
            await self._nvml.close()


def _devices() -> Devices:
    read, unread = [], {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        try:
            read.append(_device(index))
        except pynvml.NVMLError_Uninitialized:
            raise
        except pynvml.NVMLError as error:
            unread[index] = str(error)
    return Devices(tuple(read), unread)


def _device(index: int) -> HostDevice:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = _known(pynvml.nvmlDeviceGetMemoryInfo, handle)
    utilization = _known(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return HostDevice(
        index=index,
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        name=text(pynvml.nvmlDeviceGetName(handle)),
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
