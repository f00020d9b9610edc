"""
Ask the NVIDIA driver what the Node's devices do. The only module that knows pynvml.

Owns the connection to the driver: it is opened when first asked, dropped on any error and opened again by the next
call. Must never block the event loop: a driver that hangs costs one thread and that reading, nothing else.
Neighbours: `families` shows the readings.
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
"""Errors that say a device has no such value, as memory and utilization of one that is cut into MIG instances."""


class DriverError(HamiError):
    """The driver cannot be asked: it is missing, broken, or did not answer in time."""


class Nvml:
    """A connection to the driver's management library."""

    def __init__(self) -> None:
        """Connect to nothing yet."""
        self._is_open = False
        self._reading: asyncio.Future[tuple[HostDevice, ...]] | None = None

    async def devices(self, timeout_seconds: float = READ_SECONDS) -> tuple[HostDevice, ...]:
        """
        Return every device of the Node, in the driver's order.

        Raises:
            DriverError: there is no driver, it refuses, or it has not answered within *timeout_seconds*. While a call
                hangs, further ones wait for the same answer rather than begin another.
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
            raise DriverError(f"the NVIDIA driver cannot be asked: {error}") from error

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
    """Return what *function* answers, or None where the driver says that there is no such value."""
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        if error.value in _UNKNOWN:
            return None
        raise


def _text(value: str | bytes) -> str:
    """Return *value* as text: which of both it is depends on the binding's version."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _in_daemon_thread(function: Callable[[], tuple[HostDevice, ...]]) -> asyncio.Future[tuple[HostDevice, ...]]:
    """
    Run *function* in a thread that does not keep the process alive.

    `asyncio.to_thread` would: a process that wants to end would wait for its pool, and so for a driver that hangs.
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
