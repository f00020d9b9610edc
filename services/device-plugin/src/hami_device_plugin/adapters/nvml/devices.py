"""
Read which devices the driver has.

Source: https://docs.nvidia.com/deploy/nvml-api/
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pynvml

from hami_device_plugin.decide.inventory import FoundDevice
from hamicommon.runtime.host.nvml import OPEN_SECONDS, Nvml, text

T = TypeVar("T")

UNSUPPORTED = (pynvml.NVMLError_NotSupported, pynvml.NVMLError_FunctionNotFound)
"""Errors for a value that a device or a driver does not have."""


@dataclass(frozen=True, slots=True)
class Discovery:
    """What the driver shows."""

    found: tuple[FoundDevice, ...]
    """The devices that answer, by index."""
    unread: Mapping[int, str]
    """Why a device cannot be read, by its index."""


async def discover(nvml: Nvml, sys_root: Path = Path("/sys")) -> Discovery:
    """
    Return the driver's devices.

    Raises:
        NvmlError: the driver cannot say how many it has.
    """
    return await nvml.call(_discover, sys_root, seconds=OPEN_SECONDS)


async def driver_load(nvml: Nvml, root: Path = Path("/")) -> str:
    """
    Return a text that changes when the driver is loaded again: the boot, the kernel's module, and the version.

    Raises:
        NvmlError: the driver is gone.
    """
    return await nvml.call(_driver_load, root)


def device_count() -> int:
    """Return how many devices the driver has. Runs in NVML's thread."""
    return int(pynvml.nvmlDeviceGetCount())


def optional(read: Callable[[], T], default: T) -> T:
    """Return what *read* returns; *default* if the driver does not support it."""
    try:
        return read()
    except UNSUPPORTED:
        return default


def _discover(sys_root: Path) -> Discovery:
    found, unread = [], {}
    for index in range(device_count()):
        try:
            found.append(_device(index, sys_root))
        except pynvml.NVMLError as error:
            unread[index] = str(error)
    return Discovery(tuple(found), unread)


def _driver_load(root: Path) -> str:
    version = text(pynvml.nvmlSystemGetDriverVersion())
    try:
        boot = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot = "unknown"
    try:
        module = (root / "sys/module/nvidia").stat().st_ino
    except OSError:
        module = 0
    return f"{boot}/{module}/{version}"


def _device(index: int, sys_root: Path) -> FoundDevice:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    bus_id = optional(lambda: text(pynvml.nvmlDeviceGetPciInfo(handle).busId), "")
    return FoundDevice(
        uuid=text(pynvml.nvmlDeviceGetUUID(handle)),
        index=index,
        name=text(pynvml.nvmlDeviceGetName(handle)),
        memory_bytes=optional(lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle).total), None),
        reserved_bytes=optional(
            lambda: int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).reserved), 0
        ),
        numa=_numa_node(sys_root, bus_id),
        minor=optional(lambda: int(pynvml.nvmlDeviceGetMinorNumber(handle)), index),
    )


def kernel_address(bus_id: str) -> str:
    """
    Return NVML's address of a PCI device as the kernel writes it: in small letters, with a domain of four digits.

    >>> kernel_address("00000000:3B:00.0"), kernel_address("")
    ('0000:3b:00.0', '')
    """
    name = bus_id.lower()
    return name[4:] if name.startswith("0000") and name.count(":") == 2 and len(name) > 12 else name


def _numa_node(sys_root: Path, bus_id: str) -> int:
    """Return the NUMA node of a PCI device; 0 if the kernel does not know."""
    try:
        return max(int((sys_root / "bus/pci/devices" / kernel_address(bus_id) / "numa_node").read_text()), 0)
    except (OSError, ValueError):
        return 0
