"""
Answer NVML's functions for devices that do not exist.

Takes the place of the driver's library in pynvml, so that everything above works as on a Node with devices. A function
that is not here is missing, as in an old driver.
Source: https://docs.nvidia.com/deploy/nvml-api/
"""

import ctypes
import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pynvml

from hami_device_plugin.decide.probe.mock import MockDevice

DRIVER_VERSION = "mock"


class MockLibrary:
    """A library with the functions that pynvml calls; each fills its arguments and returns an NVML result."""

    def __init__(self, devices: Sequence[MockDevice]) -> None:
        """Answer for *devices*, in index order."""
        self.devices = devices
        self._memory = [ctypes.create_string_buffer(1) for _ in devices]
        """What the handles point to."""
        self.handles = [ctypes.cast(memory, pynvml.c_nvmlDevice_t) for memory in self._memory]

    def __getattr__(self, name: str) -> Callable[..., int]:
        """Return the function *name*, whichever version of it pynvml wants."""
        function = _FUNCTIONS.get(re.sub(r"_v\d+$", "", name))
        if function is None:
            raise AttributeError(name)
        return partial(function, self)

    def of(self, handle: Any) -> MockDevice:
        """Return the device of a *handle*."""
        return self.devices[self.index_of(handle)]

    def index_of(self, handle: Any) -> int:
        """Return the index of the device of a *handle*."""
        address = ctypes.addressof(handle.contents)
        return next(n for n, memory in enumerate(self._memory) if ctypes.addressof(memory) == address)


def _succeed(_library: MockLibrary, *_arguments: Any) -> int:
    return int(pynvml.NVML_SUCCESS)


def _time_out(_library: MockLibrary, *_arguments: Any) -> int:
    return int(pynvml.NVML_ERROR_TIMEOUT)


def _count(library: MockLibrary, count: Any) -> int:
    return _put(count, len(library.devices))


def _by_index(library: MockLibrary, index: Any, handle: Any) -> int:
    if index.value >= len(library.devices):
        return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    handle._obj.contents = library.handles[index.value].contents
    return int(pynvml.NVML_SUCCESS)


def _by_uuid(library: MockLibrary, uuid: Any, handle: Any) -> int:
    for index, device in enumerate(library.devices):
        if device.uuid == uuid.value.decode():
            return _by_index(library, ctypes.c_uint(index), handle)
    return int(pynvml.NVML_ERROR_NOT_FOUND)


def _version(_library: MockLibrary, text: Any, _length: Any) -> int:
    return _write(text, DRIVER_VERSION)


def _uuid(library: MockLibrary, handle: Any, text: Any, _length: Any) -> int:
    return _write(text, library.of(handle).uuid)


def _name(library: MockLibrary, handle: Any, text: Any, _length: Any) -> int:
    return _write(text, library.of(handle).name)


def _minor(library: MockLibrary, handle: Any, minor: Any) -> int:
    return _put(minor, library.index_of(handle))


def _memory(library: MockLibrary, handle: Any, memory: Any) -> int:
    memory._obj.total = memory._obj.free = library.of(handle).memory_mib * 2**20
    return int(pynvml.NVML_SUCCESS)


def _put(target: Any, value: int) -> int:
    target._obj.value = value
    return int(pynvml.NVML_SUCCESS)


def _write(text: Any, value: str) -> int:
    text.value = value.encode()
    return int(pynvml.NVML_SUCCESS)


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "nvmlInit": _succeed,
    "nvmlInitWithFlags": _succeed,
    "nvmlShutdown": _succeed,
    "nvmlSystemGetDriverVersion": _version,
    "nvmlDeviceGetCount": _count,
    "nvmlDeviceGetHandleByIndex": _by_index,
    "nvmlDeviceGetHandleByUUID": _by_uuid,
    "nvmlDeviceGetUUID": _uuid,
    "nvmlDeviceGetName": _name,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetMinorNumber": _minor,
    "nvmlEventSetCreate": _succeed,
    "nvmlEventSetWait": _time_out,
    "nvmlEventSetFree": _succeed,
    "nvmlDeviceRegisterEvents": _succeed,
}
