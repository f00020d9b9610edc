"""
Read the Node's devices from the NVIDIA driver. The only module with pynvml.

The first call opens the connection. Any error closes it, and the next call opens it again. Must never block the event
loop: a driver that hangs costs one thread and one reading.
Neighbours: `observation` shows the readings.
Source: https://docs.nvidia.com/deploy/nvml-api/
"""

import asyncio
from collections.abc import Callable
from threading import Thread
from typing import Any

import pynvml

from hami_monitor.decide.observation import HostDevice
from hamicommon.errors import HamiError

READ_SECONDS = 10.0
"""Longest wait for a reading of all devices."""
_UNKNOWN = frozenset({pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_NO_PERMISSION})
"""Errors for a value that a device does not have, as a device in MIG mode has no utilization."""


class DriverError(HamiError):
    """The driver is missing, is broken, or did not answer in time."""


class Nvml:
    """A connection to the driver's management library."""

    def __init__(self) -> None:
        """Prepare; `devices` opens the connection."""
        self._is_open = False
        self._reading: asyncio.Future[tuple[HostDevice, ...]] | None = None

    async def devices(self, timeout_seconds: float = READ_SECONDS) -> tuple[HostDevice, ...]:
        """
        Return every device of the Node, in the driver's order.

        Raises:
            DriverError: the driver is missing, fails, or has not answered within *timeout_seconds*. While a call hangs,
                further calls wait for the same answer.
        """
        if self._reading is None or self._reading.done():
            self._reading = _in_daemon_thread(self._read)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await asyncio.shield(self._reading)
        except TimeoutError as error:
            raise DriverError(f"the NVIDIA driver has not answered within {timeout_seconds:g} s") from error

    def _read(self) -> tuple[HostDevice, ...]:
        try:
            if not self._is_open:
                pynvml.nvmlInit()
                self._is_open = True
            return tuple(_device(index) for index in range(pynvml.nvmlDeviceGetCount()))
        except pynvml.NVMLError as error:
            self._close()
            raise DriverError(f"the NVIDIA driver cannot be used: {error}") from error

    def _close(self) -> None:
        if self._is_open:
            self._is_open = False
            _known(pynvml.nvmlShutdown)


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


def _in_daemon_thread(function: Callable[[], tuple[HostDevice, ...]]) -> asyncio.Future[tuple[HostDevice, ...]]:
    """
    Run *function* in a daemon thread.

    `asyncio.to_thread` uses a pool, and a process that ends waits for its pool, so also for a driver that hangs.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[tuple[HostDevice, ...]] = loop.create_future()

    def settle(result: tuple[HostDevice, ...] | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result or ())

    def work() -> None:
        result, error = None, None
        try:
            result = function()
        except BaseException as raised:
            error = raised
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, error)

    Thread(target=work, name="nvml", daemon=True).start()
    return future
