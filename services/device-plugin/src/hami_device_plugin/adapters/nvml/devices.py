"""
Read which devices the driver has.

Source: https://docs.nvidia.com/deploy/nvml-api/
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pynvml

from hami_device_plugin.decide.inventory import FoundDevice
from hamicommon.runtime.nvml import OPEN_SECONDS, Nvml

T = TypeVar("T")

UNSUPPORTED = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)
"""Errors for a value that a device or a driver does not have."""


async def find_devices(nvml: Nvml, sys_root: Path = Path("/sys")) -> tuple[FoundDevice, ...]:
    """
    Return every device, by index.

    Raises:
        NvmlError: a device does not answer.
    """
    return await nvml.call(_devices, sys_root, seconds=OPEN_SECONDS)


def optional(read: Callable[[], T], default: T) -> T:
    """
    Return what *read* returns; *default* if the driver does not support it.
    """
    try:
        return read()
    except UNSUPPORTED:
        return default


def text(value: str | bytes) -> str:
    """Return *value* as text; its type depends on the version of the binding."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _devices(sys_root: Path) -> tuple[FoundDevice, ...]:
    return tuple(_device(index, sys_root) for index in range(pynvml.nvmlDeviceGetCount()))


def _device(index: int, sys_root: Path) -> FoundDevice:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    bus_id = optional(lambda: text(pynvml.nvmlDeviceGetPciInfo(handle).busId), "")
    return FoundDevice(
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        name=text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=optional(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), None),
        numa=_numa_node(sys_root, bus_id),
        minor=optional(lambda: int(pynvml.nvmlDeviceGetMinorNumber(handle)), index),
    )


def _numa_node(sys_root: Path, bus_id: str) -> int:
    """
    Return the NUMA node of a PCI device; 0 if the kernel does not know.

    NVML writes the PCI domain with eight digits, sysfs with four.
    """
    name = bus_id.lower()
    name = name[4:] if name.startswith("0000") and name.count(":") == 2 and len(name) > 12 else name
    try:
        return max(int((sys_root / "bus/pci/devices" / name / "numa_node").read_text()), 0)
    except (OSError, ValueError):
        return 0
