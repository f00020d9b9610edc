"""
Own NVML in a process: the library, the thread that calls it, and the deadline of each call.

NVML blocks, and never returns if a device or the driver is broken. So all calls go through `Nvml.call`, never through
another thread. While NVML is open it holds the kernel module `nvidia`, which then cannot be unloaded, and MIG mode
cannot change. `close` lets go of everything: it shuts NVML down and unloads the library, so that the next `open` loads
the library of the driver that is there then.
Must never decide what an answer means.
Source: https://docs.nvidia.com/deploy/nvml-api/
"""

import ctypes
from _ctypes import dlclose
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import pynvml

from hamicommon.errors import HamiError
from hamicommon.runtime.host.worker import HangError, Worker

T = TypeVar("T")

CALL_SECONDS = 5.0
OPEN_SECONDS = 30.0
"""Without persistence mode, each device takes seconds to initialise."""
LIBRARY = "libnvidia-ml.so.1"
LIBRARY_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
    "usr/local/glibc/usr/lib",
)
"""The last is that of Talos Linux: https://github.com/siderolabs/extensions/tree/main/nvidia-gpu"""


class NvmlError(HamiError):
    """NVML is missing, cannot be used, or a call failed."""

    def __init__(self, message: str, code: int | None = None) -> None:
        """Carry NVML's error *code*, one of `pynvml.NVML_ERROR_*`; None if the error is not NVML's."""
        super().__init__(message)
        self.code = code


class NvmlHangError(NvmlError):
    """A call has not returned."""

    def __init__(self, message: str, *, is_first: bool) -> None:
        """Say in *is_first* whether this call passed its deadline; if not, an earlier one still hangs."""
        super().__init__(message)
        self.is_first = is_first


class Nvml:
    """The NVML of this process; there must be only one."""

    def __init__(self, stand_in: Callable[[], Any] = lambda: None) -> None:
        """
        Prepare; nothing is loaded before `open`.

        *stand_in* returns a library to call instead of the driver's, None to call the driver's.
        """
        self._worker = Worker("NVML")
        self._stand_in = stand_in
        self._library: Any = None
        self.openings = 0
        """How often NVML was opened; handles and event sets end with each."""

    @property
    def is_open(self) -> bool:
        """Whether this process may hold the driver."""
        return self._library is not None

    def problem(self) -> str | None:
        """Return which call hangs and for how long; None if none does."""
        return self._worker.problem()

    async def open(self, driver_root: str, seconds: float = OPEN_SECONDS) -> None:
        """
        Load NVML from below *driver_root*, or else as the linker finds it, and initialise it. Close it first if open.

        Raises:
            NvmlError: it is missing or cannot be used.
        """
        try:
            await self.call(self._open, Path(driver_root), seconds=seconds)
        except NvmlHangError:
            raise
        except NvmlError as error:
            places = f"{driver_root} and in the linker's directories"
            message = f"{LIBRARY} cannot be used; searched below {places}: {error.__cause__}"
            raise NvmlError(message, error.code) from error

    async def close(self) -> None:
        """
        Shut NVML down and unload it, so that this process does not hold the driver. Do nothing if it is not open.

        Raises:
            NvmlHangError: an earlier call hangs, so NVML stays open.
        """
        await self.call(self._close)

    async def call(self, function: Callable[..., T], *arguments: Any, seconds: float = CALL_SECONDS) -> T:
        """
        Return what *function*, which calls NVML, returns for *arguments*.

        Calls run one after another in NVML's thread; the deadline of *seconds* starts when earlier ones have ended.

        Raises:
            NvmlHangError: it did not return in time, or an earlier call still has not. Its late result is dropped.
            NvmlError: NVML returned an error, or the library cannot be read.
        """
        try:
            return await self._worker.call(_translated(function), *arguments, seconds=seconds)
        except HangError as error:
            raise NvmlHangError(str(error), is_first=error.is_first) from error

    def _open(self, driver_root: Path) -> None:
        self._close()
        library = self._stand_in() or ctypes.CDLL(str(library_below(driver_root) or LIBRARY))
        # pynvml loads the library only if it has none.
        pynvml.nvmlLib = library
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            _unload(library)
            raise
        self._library = library
        self.openings += 1

    def _close(self) -> None:
        if self._library is None:
            return
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()
        _unload(self._library)
        self._library = None


def library_below(driver_root: Path) -> Path | None:
    """Return the path of NVML below *driver_root*, links resolved; None if it is not there."""
    places = (driver_root / directory / LIBRARY for directory in LIBRARY_DIRECTORIES)
    return next((place.resolve() for place in places if place.exists()), None)


def text(value: str | bytes) -> str:
    """Return *value* as text; its type depends on the version of the binding."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _unload(library: Any) -> None:
    """Unload *library*, and have pynvml forget it and its functions."""
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()
    if isinstance(library, ctypes.CDLL):
        dlclose(library._handle)


def _translated(function: Callable[..., T]) -> Callable[..., T]:
    """Return *function* with the errors of this module; NVML's thread must run it, because NVML words its errors."""
    name = getattr(function, "__name__", "NVML").strip("_")

    @wraps(function)
    def translated(*arguments: Any) -> T:
        try:
            return function(*arguments)
        except pynvml.NVMLError as error:
            raise NvmlError(f"{name}: {error}", error.value) from error
        except OSError as error:
            raise NvmlError(f"{name}: {error}") from error

    return translated
